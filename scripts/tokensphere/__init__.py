"""How tokens cluster in transformers: the library behind the tokensphere workflow.

Import the modules you need (`from tokensphere import store, sphere`): this package imports
none of them by itself, so that a script depends on exactly the code it uses.
"""
