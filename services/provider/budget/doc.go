// Package budget knows what models cost, and holds back requests that could cost more than
// may be spent.
//
// [Prices] is the table of the configuration. What is not in it is unknown, never free.
// [Ledger] is what all provider processes of a system have spent together in a period. It is
// one key of a bucket, so it survives every process.
//
// # Guarantee
//
// Before a request is sent, its worst case is added to what was spent, by compare-and-set, and
// it is refused if that exceeds the limit. When the answer is there, its real cost takes the
// place of the worst case. A process that dies between the two leaves the worst case: what is
// counted is never less than what was spent, if the prices are right. Without the bus, or
// without the bucket, no request is sent.
package budget
