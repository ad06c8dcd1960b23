// Package archtest holds the source tree to its own layout: who may import whom,
// what must stay pure, how long a file gets.
//
// It reads the source, it does not compile it, so a tree that does not build is
// still judged. [Load] parses every module below a directory, [Rules] are the
// promises of the design, each a function of the parsed tree. An exception to a
// rule is a line of one of the tables in allow.go, with its reason; a line that
// nothing needs any more is a breach too.
package archtest
