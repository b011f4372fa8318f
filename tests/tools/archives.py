"""Zip archives taken apart: what they hold, and one thing in them changed."""

from __future__ import annotations

import json
import warnings
import zipfile


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, changes, twice=()):
    """Write the archive anew with some members replaced, dropped (None) or repeated."""
    kept = {name: data for name, data in (members(path) | changes).items() if data is not None}
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of the repeated member
        for name, data in [*kept.items(), *((name, kept[name]) for name in twice)]:
            archive.writestr(name, data)


def edit(path, member, change):
    """Change one metadata document of the archive."""
    document = json.loads(members(path)[member])
    change(document)
    rewrite(path, {member: json.dumps(document).encode()})


def flip(path, member):
    """Flip one bit in the middle of a member's bytes in the archive."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
    data = bytearray(path.read_bytes())
    name, extra = (data[info.header_offset + at] for at in (26, 28))
    data[info.header_offset + 30 + name + extra + info.compress_size // 2] ^= 1
    path.write_bytes(data)
