package toolschema

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"skandha.dev/services/internal/text"
)

const (
	root = "(root)"
	// maxErrors bounds the list; what is beyond is counted.
	maxErrors = 200
	// maxMessage bounds one message in bytes: some repeat the value they are about.
	maxMessage = 400
)

// explain lists the leaves of a validation error: "<pointer>: <what is wrong>".
func explain(err error) []string {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return []string{root + ": " + err.Error()}
	}
	e := explainer{p: message.NewPrinter(language.English)}
	e.walk(v)
	slices.Sort(e.out)
	e.out = slices.Compact(e.out)
	if n := len(e.out) - maxErrors; n > 0 {
		e.out = append(e.out[:maxErrors], fmt.Sprintf("and %d more errors", n))
	}
	return e.out
}

type explainer struct {
	p   *message.Printer
	out []string
}

func (e *explainer) walk(v *jsonschema.ValidationError) {
	if len(v.Causes) > 0 {
		for _, c := range v.Causes {
			e.walk(c)
		}
		return
	}
	at := pointer(v.InstanceLocation)
	switch k := v.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			e.add(at+"/"+escape(name), "is required")
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			e.add(at+"/"+escape(name), "is not an argument of this tool")
		}
	default:
		e.add(at, v.ErrorKind.LocalizedString(e.p))
	}
}

func (e *explainer) add(at, what string) {
	e.out = append(e.out, text.Cut(pointerOr(at), maxMessage)+": "+text.Cut(what, maxMessage))
}

// pointer is the path as a JSON pointer, or the beginning of one that is too long for a
// message: it is made for every error, and a name may be as long as the arguments.
func pointer(path []string) string {
	var b strings.Builder
	for _, t := range path {
		if b.Len() > maxMessage {
			break
		}
		b.WriteByte('/')
		b.WriteString(escape(text.Cut(t, maxMessage)))
	}
	return b.String()
}

func pointerOr(p string) string {
	if p == "" {
		return root
	}
	return p
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func escape(token string) string { return escaper.Replace(token) }
