"""Makes the `_pb2` modules of src/arrowmq/proxy/messages out of the `.proto` files beside them.

    python tools/protobuf_classes.py            writes them
    python tools/protobuf_classes.py --check    exit code 1 if they are not what the `.proto` files say

The compiler is that of grpcio-tools. Three things are changed in what it writes: the modules import each other from
their package, the descriptors go into the pool of `messages/pool.py` instead of the one that a whole process shares,
and the compiler's version is not demanded of the one who runs it.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MESSAGES = ROOT / "src" / "arrowmq" / "proxy" / "messages"
PACKAGE = "arrowmq.proxy.messages"
#  file here → its name in the protocol, by which reflection knows it
NAMES = {
    "definition.proto": "apache/rocketmq/v2/definition.proto",
    "service.proto": "apache/rocketmq/v2/service.proto",
    "health.proto": "grpc/health/v1/health.proto",
    "reflection.proto": "grpc/reflection/v1/reflection.proto",
}


def generate() -> dict[str, str]:
    """File name → content."""
    import grpc_tools
    from grpc_tools import protoc

    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder) / "in", Path(folder) / "out"
        out.mkdir()
        for name, path in NAMES.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(MESSAGES / name, tree / path)
        arguments = ["protoc", f"-I{tree}", f"-I{well_known}", f"--python_out={out}", f"--pyi_out={out}"]
        if protoc.main([*arguments, *NAMES.values()]):
            raise SystemExit("protoc failed")
        made: dict[str, str] = {}
        for path in NAMES.values():
            for ending in ("_pb2.py", "_pb2.pyi"):
                file = out / (path.removesuffix(".proto") + ending)
                made[file.name] = _adapted(file.read_text())
        return made


def _adapted(text: str) -> str:
    text = re.sub(r"^from apache\.rocketmq\.v2 import", f"from {PACKAGE} import", text, flags=re.M)
    text = text.replace(
        "from google.protobuf import descriptor_pool as _descriptor_pool\n",
        f"from {PACKAGE}.pool import POOL as _POOL\n",
    )
    # The check wants the very runtime that compiled; a serialized descriptor is the same to all of them since 6.30.
    text = re.sub(r"^_runtime_version\.Validate\w+\(\n(?:    .*\n)*\)\n", "", text, flags=re.M)
    text = re.sub(
        r"^from google\.protobuf import runtime_version.*\n|^# Protobuf Python Version.*\n", "", text, flags=re.M
    )
    return text.replace("_descriptor_pool.Default()", "_POOL")


def main() -> None:
    made = generate()
    if "--check" in sys.argv[1:]:
        wrong = [name for name, text in made.items() if (MESSAGES / name).read_text() != text]
        if wrong:
            raise SystemExit(f"{', '.join(wrong)}: not what the .proto files say; run tools/protobuf_classes.py")
        return
    for name, text in made.items():
        (MESSAGES / name).write_text(text)


if __name__ == "__main__":
    main()
