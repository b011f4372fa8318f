"""A run whose processes reach no network: each fails where it opens a socket to anything."""

from pathlib import Path

# Loaded by every Python process of a run.
NO_NETWORK = '''"""No process of this run reaches a network."""
import socket


def refuse(self, address, *rest):
    raise OSError(f"a socket was opened to {address}")


socket.socket.connect = socket.socket.connect_ex = refuse
'''


def write(folder: Path) -> Path:
    """Write what a process must find on its PYTHONPATH; return that folder."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    return folder
