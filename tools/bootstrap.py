"""Set up `.venv`: torch, then genplan with its test extras, at the versions of constraints.txt. Run by make.

Uses nothing but the standard library, and syntax that an old Python can read far enough to be told that it is too old.
A second call only compares a fingerprint.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOG = VENV / "setup.log"
STAMP = VENV / "setup.stamp"
OLDEST = (3, 11)
EXTRAS = "test"
NO_NETWORK = (
    "NewConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "ProxyError",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "Max retries exceeded",
    "from versions: none",  # of packages known to exist: the index did not answer
)


def stop(message):
    sys.exit("genplan: " + message)


def check_python(version, executable):
    if version < OLDEST:
        found = ".".join(str(part) for part in version[:3])
        stop(f"Python 3.11 or newer is needed, {executable} is {found}; install one and name it: make run PYTHON=…")


def fingerprint():
    text = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "constraints.txt").read_bytes()
    return hashlib.sha256(text + sys.version.encode() + EXTRAS.encode()).hexdigest()


def why(log):
    """One line that says what went wrong, from pip's log."""
    if any(sign in log for sign in NO_NETWORK):
        return "the package index cannot be reached; connect to the network and run the same command again"
    errors = [line.strip() for line in log.splitlines() if line.startswith(("ERROR", "Error"))]
    return errors[-1] if errors else "pip failed"


def call(what, command):
    print(f"genplan: {what} …", flush=True)
    with LOG.open("ab") as log:
        began = log.tell()
        # A user's own PYTHONPATH or an active environment must not leak into ours.
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment)
    if done.returncode:
        tail = LOG.read_bytes()[began:].decode(errors="replace")
        stop(f"{what} failed: {why(tail)} (log: {LOG.relative_to(ROOT)})")


def main():
    check_python(sys.version_info[:3], sys.executable)
    if STAMP.exists() and STAMP.read_text() == fingerprint():
        return
    began = time.time()
    print("genplan: setting up .venv (once; about two minutes)", flush=True)
    python = str(VENV / "bin" / "python")
    if not (VENV / "bin" / "pip").exists():
        # A torch that is already here (built for a GPU, say) is kept: the environment sees it.
        keep = ["--system-site-packages"] if importlib.util.find_spec("torch") else []
        made = subprocess.run([sys.executable, "-m", "venv", *keep, str(VENV)], capture_output=True, text=True)
        if made.returncode:
            stop("no virtual environment could be made; install Python's venv module (Debian: python3-venv)")
    STAMP.unlink(missing_ok=True)
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    limits = (ROOT / "constraints.txt").read_text()
    torch = next(line for line in limits.splitlines() if line.startswith("torch=="))
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
        call("installing " + torch, [*pip, torch])
    # torch itself is left out of the constraints, so that a kept one of another version is not replaced.
    others = VENV / "constraints-without-torch.txt"
    others.write_text(limits.replace(torch, ""))
    call("installing genplan", [*pip, "--constraint", str(others), "--editable", f"{ROOT}[{EXTRAS}]"])
    partial = STAMP.with_suffix(".partial")
    partial.write_text(fingerprint())
    partial.replace(STAMP)
    print(f"genplan: ready after {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
