// Package lexical finds texts that share words with a query. It compares words and not
// meanings: who offers its results calls them lexical, never semantic.
//
// [Terms] makes the words of a text comparable: case, inflection of English words,
// width and the different forms of Han characters do not count. Scripts without spaces
// between words become pairs of neighbouring characters. An [Index] ranks texts by BM25.
//
// # Reach
//
// Different forms of one Han character are folded by a table of 2,400 characters: the
// Traditional characters of Big5 with their Simplified forms of GB 2312, and the Japanese
// forms that differ from both. Words are not translated: 資料庫 and 数据库 stay different,
// and so do 電郵 and メール. Only English is stemmed.
//
// # Guarantee
//
// All of it is pure and safe for concurrent use, except for a [Builder]. Terms takes any
// bytes, in time proportional to their number.
package lexical
