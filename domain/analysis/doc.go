// Package analysis looks at the bytes of a file and says what structures they hold: whether the content fits the
// declared type, scripts and attachments of a PDF, macros of an Office file, metadata of an image, entries of an
// archive, invisible characters of a text.
//
// What must stay true:
//
//   - The same input gives the same results, byte for byte: no clock, no
//     randomness, no environment, no map order.
//   - Evidence is names of structures, counts and positions. It never holds a
//     piece of the file: no text, no entry's name, no coordinates, no author.
//   - Nothing is said about who or what wrote the content, or whether it is true.
//   - "clear" is said only of what was looked at whole. What could not be read,
//     or went past a limit, is "inconclusive".
//   - A parser that panics makes its family inconclusive and no other.
//
// The parsers read hostile files with other people's code, so the bytes of a stranger belong into the child process of
// cmd/analyzer, which bounds memory and time; here only what a library unpacks is bounded.
package analysis
