"use strict";
// What the program that opened this page calls. Values, such as images, come and go as bytes over its server.
// A runtime's own script assigns robustcmp.load(header) and robustcmp.ask(header, values).
const robustcmp = {
  async values() {
    return (await fetch("values")).arrayBuffer();
  },

  // Answers one question after another: it posts an answer, and the response is the next question.
  async converse() {
    for (let options = { method: "POST" }; ; ) {
      const response = await fetch("answer", options);
      const header = JSON.parse(response.headers.get("Question"));
      const [shape, rows] = await robustcmp.rows(header, await response.arrayBuffer());
      options = { method: "POST", headers: { Shape: JSON.stringify(shape) }, body: rows };
    }
  },

  // Asks a network about images, so many at once, and returns the shape of all rows, and them.
  async rows(header, images) {
    const [count, ...image] = header.shape;
    const bytes = images.byteLength / count;
    const rows = [];
    let row;
    for (let start = 0; start < count; start += header.batch) {
      const part = Math.min(header.batch, count - start);
      const values = images.slice(start * bytes, (start + part) * bytes);
      const [shape, answer] = await robustcmp.ask({ ...header, shape: [part, ...image] }, values);
      if (shape[0] !== part) throw new Error(`expected ${part} rows for ${part} images, received the shape ${shape}`);
      row = shape.slice(1);
      rows.push(answer);
    }
    const joined = new Float32Array(rows.reduce((length, answer) => length + answer.length, 0));
    rows.reduce((start, answer) => (joined.set(answer, start), start + answer.length), 0);
    return [[count, ...row], joined];
  },
};
