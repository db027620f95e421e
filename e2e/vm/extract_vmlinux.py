"""Take the uncompressed kernel out of a bzImage; run by the guest's Python (3.14 or newer).

Source: the kernel's Documentation/arch/x86/boot.rst, fields setup_sects, payload_offset and
payload_length. The payload is one compressed ELF file, followed by its size.
"""

import lzma
import struct
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

_SETUP_SECTS, _PAYLOAD_OFFSET = 0x1F1, 0x248
_SECTOR_BYTES = 512
_ELF_MAGIC = b"\x7fELF"


def _zstd(payload: bytes) -> bytes:
    from compression import zstd  # noqa: PLC0415 - newer than the checker's Python

    return bytes(zstd.ZstdDecompressor().decompress(payload))


# One-shot objects rather than functions: they stop at the end of the stream.
_DECOMPRESS: Mapping[bytes, Callable[[bytes], bytes]] = {
    b"\x28\xb5\x2f\xfd": _zstd,
    b"\xfd7zXZ": lambda payload: lzma.LZMADecompressor().decompress(payload),
    b"\x1f\x8b": lambda payload: zlib.decompressobj(wbits=31).decompress(payload),
}


def extract(image: bytes) -> bytes:
    """The ELF kernel of a bzImage.

    Raises:
        ValueError: another compression, or no ELF file inside.
    """
    offset, length = struct.unpack_from("<II", image, _PAYLOAD_OFFSET)
    start = (image[_SETUP_SECTS] + 1) * _SECTOR_BYTES + offset
    payload = image[start : start + length]
    for magic, decompress in _DECOMPRESS.items():
        if payload.startswith(magic):
            kernel = decompress(payload)
            if kernel.startswith(_ELF_MAGIC):
                return kernel
    raise ValueError(f"no ELF kernel behind {payload[:6]!r}")


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(extract(Path(sys.argv[1]).read_bytes()))
