/** Pictures that are dropped on a pad or pasted into the page. */

export function takeDrops(pad) {
  const over = (inside) => (event) => {
    event.preventDefault();
    pad.paper.classList.toggle("over", inside);
  };
  pad.paper.addEventListener("dragover", over(true));
  pad.paper.addEventListener("dragleave", over(false));
  pad.paper.addEventListener("drop", (event) => {
    over(false)(event);
    const [file] = event.dataTransfer.files;
    if (file) pad.take(file);
  });
}

/** Pictures that are pasted go to the pad that is pointed at, else to an empty one in view. */
export function takePastes(pads) {
  document.addEventListener("paste", (event) => {
    const [file] = event.clipboardData.files;
    const inView = pads.filter((one) => one.paper.offsetParent !== null);
    const pad = inView.find((one) => one.pointedAt) ?? inView.find((one) => one.empty) ?? inView[0];
    if (file && pad) pad.take(file);
  });
}
