// What the user has decided about the labels of one text, with undo. No part of the page is touched here.

export class Decisions {
  constructor() {
    this.states = new Map(); // name of a label -> "accepted", "rejected" or "added"
    this.added = new Map(); // name -> label that was added, the newest last
    this.sent = ""; // the last feedback, which is not sent twice
    this.past = []; // for each step the states before it: pairs of name and state
  }

  get(name) {
    return this.states.get(name) ?? "";
  }

  /** Set the state of some labels in one step. */
  set(names, state) {
    this.past.push(names.map((name) => [name, this.get(name)]));
    for (const name of names) this.#put(name, state);
  }

  /** Accept or reject a label; the same again takes it back. */
  toggle(name, state) {
    this.set([name], this.get(name) === state ? "" : state);
  }

  /** Add a label that the model has not proposed. */
  add(label) {
    this.added.set(label.label, label);
    this.set([label.label], "added");
  }

  undo() {
    for (const [name, state] of this.past.pop() ?? []) this.#put(name, state);
  }

  /** The names of the labels with a state. */
  names(state) {
    return [...this.states].filter(([, one]) => one === state).map(([name]) => name);
  }

  #put(name, state) {
    if (state) this.states.set(name, state);
    else this.states.delete(name);
  }
}
