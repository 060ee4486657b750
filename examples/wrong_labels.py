"""Find pictures in the wrong folder: `python examples/wrong_labels.py FOLDER`.

FOLDER has a folder for each class, named like it. The most certain disagreements come first.
"""

import argparse
import sys
from pathlib import Path

from capsnet import CapsNet, FailedPrediction


def main(folder: Path) -> None:
    """Print the pictures that the network puts into another class than their folder."""
    paths = sorted(path for path in folder.glob("*/*") if path.is_file())
    suspects: list[tuple[float, Path, str]] = []
    with CapsNet() as capsnet:
        for path, answer in zip(paths, capsnet.classify_each(paths), strict=True):
            if isinstance(answer, FailedPrediction):
                print(f"{path}: {answer.problem.detail}", file=sys.stderr)
            elif answer.class_name != path.parent.name:
                suspects.append((answer.length, path, answer.class_name))
    for length, path, class_name in sorted(suspects, reverse=True):
        print(f"{path}: {class_name} ({length:.2f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)
