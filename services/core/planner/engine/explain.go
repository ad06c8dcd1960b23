package engine

import (
	"regexp"
	"strings"

	"skandha.dev/services/internal/lexical"
	"skandha.dev/services/internal/text"
)

// refers matches words that mean an earlier result.
var refers = regexp.MustCompile(`(?i)\b(?:it|its|that|them|those|results?|output|answer)\b|结果|結果|它|这个|這個|それ|その`)

// hedges matches words with which a request may not mean what its other words say: a negation,
// a condition, a question about the tool itself.
var hedges = regexp.MustCompile(`(?i)\b(?:not|never|no|don'?t|doesn'?t|without|except|instead|unless|if|how|why|should|when|whether|or)\b` +
	`|n[’']t\b|不要|不用|别|別|勿|无需|無需|除了|如果|要是|怎么|怎麼|如何|为什么|為什麼|或者|还是|還是` +
	`|ないで|ません|なければ|もし|どうやって|どうすれば|なぜ|または`)

// courtesy matches what people add to requests without asking for more.
var courtesy = regexp.MustCompile(`(?i)\b(?:please|kindly|could|would|can|tell|show|give|want|need|thanks?|thank|let|help|now|hey|hi|hello)\b` +
	`|请问|請問|请|請|帮我|幫我|帮忙|幫忙|麻烦|麻煩|一下|给我|給我|我想要|我想|我要|现在|現在|吗|嗎|呢|的|了|把|将|將|是|在` +
	`|ください|下さい|お願いします|してほしい|教えて|ですか|ますか|です|ます|して|を|は|が|の|に|で|と|も|か`)

// explained returns the share of the words of a request that have a meaning for the tool, and
// the first word that has none.
func (d draft) explained() (share float64, unknown string) {
	var b strings.Builder
	b.WriteString(d.spec.Name + " " + d.spec.Description + " " + strings.Join(d.spec.ScenarioTags, " "))
	for _, p := range propertiesOf(d.spec) {
		b.WriteString(" " + p.name + " " + p.description + " " + strings.Join(p.enum, " "))
	}
	known := map[string]bool{}
	for _, t := range lexical.Terms(strings.ReplaceAll(b.String(), "_", " ")) {
		known[t] = true
	}
	terms := lexical.Terms(courtesy.ReplaceAllString(d.params.rest, " "))
	if len(terms) == 0 {
		return 1, ""
	}
	n := 0
	for _, t := range terms {
		switch {
		case known[t]:
			n++
		case unknown == "":
			unknown = t
		}
	}
	return float64(n) / float64(len(terms)), unknown
}

// quote shortens a part of the request for a sentence.
func quote(s string) string { return `"` + text.Cut(strings.Join(strings.Fields(s), " "), 60) + `"` }
