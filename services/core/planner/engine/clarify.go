package engine

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/text"
)

// language is the language of a question to the person.
type language int

const (
	english language = iota
	chinese
	japanese
)

// languageOf guesses the language by the characters: questions exist in three.
func languageOf(s string) language {
	l := english
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Hiragana, unicode.Katakana):
			return japanese
		case unicode.Is(unicode.Han, r):
			l = chinese
		}
	}
	return l
}

// The questions to the person. The arguments are the tool and what is open, or invalid.
var (
	missingOf = [...]string{
		"To use %s I need one more thing: %s. What should I use?",
		"要使用 %s，我还需要：%s。请告诉我。",
		"%s を使うには、次の情報が必要です：%s。教えてください。",
	}
	invalidOf = [...]string{
		"I could not work out how to use %s for this: %s. Could you say it in other words?",
		"我无法确定如何使用 %s：%s。能换个说法吗？",
		"%s の使い方を判断できませんでした：%s。別の言い方でお願いできますか。",
	}
	unsureOf = [...]string{
		"I am not sure what you would like me to do. Should I use %s?",
		"我不确定您希望我做什么。要使用 %s 吗？",
		"ご希望がはっきりしませんでした。%s を使いますか。",
	}
)

// missingText asks for the parameters that are open, or else about what is invalid.
func missingText(request string, spec tool.Spec, open, errs []string) string {
	l := languageOf(request)
	if len(open) == 0 {
		return fmt.Sprintf(invalidOf[l], spec.Name, text.Cut(errs[0], maxWord))
	}
	var of []string
	for _, p := range propertiesOf(spec) {
		if !slices.Contains(open, p.name) {
			continue
		}
		name := p.name
		if p.description != "" {
			name += " (" + text.Cut(p.description, maxWord) + ")"
		}
		of = append(of, name)
	}
	return fmt.Sprintf(missingOf[l], spec.Name, strings.Join(of, ", "))
}

// unsure asks whether the tools are meant.
func unsure(request string, intents []Intent) string {
	names := make([]string, len(intents))
	for i, in := range intents {
		names[i] = in.Tool
	}
	return fmt.Sprintf(unsureOf[languageOf(request)], strings.Join(names, ", "))
}
