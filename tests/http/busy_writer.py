"""Changes files below a folder until a file `stop` appears beside it; logs what it did. Run as a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path


def main(folder: Path, log: Path, seed: int) -> None:
    chance = random.Random(seed)
    stop = folder.with_name("stop")
    with log.open("a") as history:

        def say(action: str, path: Path, data: bytes = b"") -> None:
            line = {"action": action, "path": str(path.relative_to(folder)), "sha256": hashlib.sha256(data).hexdigest()}
            history.write(json.dumps(line) + "\n")
            history.flush()

        version = 0
        while not stop.exists():
            version += 1
            path = folder / chance.choice(["", "a", "b", "b/c"]) / f"f{chance.randrange(25)} {chance.randrange(3)}%.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            data = f"version {version} ".encode() * chance.randrange(1, 40)
            act = chance.random()
            if act < 0.35:
                say("write", path, data)
                path.write_bytes(data)
            elif act < 0.6:
                say("replace", path, data)
                aside = folder.with_name("aside")
                aside.write_bytes(data)
                os.replace(aside, path)
            elif act < 0.85:
                say("delete", path)
                path.unlink(missing_ok=True)
            elif path.exists():
                target = path.with_name(f"g{chance.randrange(10)}.txt")
                say("rename", target, path.read_bytes())
                os.replace(path, target)
            time.sleep(chance.choice([0.002, 0.01, 0.05]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
