/* The WordPiece tokenizer of uncased BERT, as the library tokenizers has it. */
const MAX_WORD = 100; // characters; a longer word is unknown
// What is removed, and what is a word of its own.
const CONTROL = /(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\ufffd]/gu;
const CHINESE = new RegExp("[\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{2a6df}"
  + "\\u{2a700}-\\u{2b81f}\\u{2b920}-\\u{2ceaf}\\u{2f800}-\\u{2fa1f}]", "gu");
const PUNCTUATION = "\\p{P}!-\\/:-@\\[-`\\{-~";
const WORDS = new RegExp(`[${PUNCTUATION}]|[^\\s${PUNCTUATION}]+`, "gu");

export class Tokenizer {
  constructor(pieces) {
    this.pieces = pieces;
    this.ids = new Map(pieces.map((piece, id) => [piece, id]));
  }

  /* The ids of a text, with [CLS] and [SEP] around them. */
  encode(text) {
    const words = this.normalise(text).match(WORDS) ?? [];
    return ["[CLS]", ...words.flatMap((word) => this.divide(word)), "[SEP]"]
      .map((piece) => this.ids.get(piece));
  }

  /* Without control characters, accents and capitals; Chinese characters are words. */
  normalise(text) {
    const characters = text.replace(CONTROL, "").replace(CHINESE, " $& ")
      .normalize("NFD").replace(/\p{Mn}/gu, "");
    return Array.from(characters, (character) => character.toLowerCase()).join("");
  }

  /* The longest piece of the vocabulary from the left, and so on. */
  divide(word) {
    const characters = [...word];
    const pieces = [];
    let start = 0;
    while (start < characters.length) {
      let end = characters.length;
      const piece = () => (start ? "##" : "") + characters.slice(start, end).join("");
      while (end > start && !this.ids.has(piece())) end -= 1;
      if (end === start || characters.length > MAX_WORD) return ["[UNK]"];
      pieces.push(piece());
      start = end;
    }
    return pieces;
  }
}
