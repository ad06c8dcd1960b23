package secret

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
)

// Hidden is shown in place of a secret.
const Hidden = "(hidden)"

// maxDepth bounds documents within documents; deeper ones are hidden as a whole.
const maxDepth = 8

// Hide returns arguments of a call as people outside may see them: JSON in one line without the values
// whose names say that they are secret, in objects, headers, addresses, form bodies, and documents
// within strings. A secret under no telling name is not recognized.
func Hide(args json.RawMessage) string {
	v, err := decode(args)
	if err != nil {
		return Hidden
	}
	return encode(hide(v, 0))
}

// HideText returns a text without the secrets that it names, as in "password: x" or "?token=x".
func HideText(s string) string { return hideText(s, 0) }

func decode(doc []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber() // numbers are shown as they are
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, &json.SyntaxError{Offset: d.InputOffset()}
	}
	return v, nil
}

func encode(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // what was decoded can be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

func hide(v any, depth int) any {
	if depth > maxDepth {
		return Hidden
	}
	switch v := v.(type) {
	case map[string]any:
		return hideObject(v, depth)
	case []any:
		for i := range v {
			if i > 0 && flag(v[i-1]) {
				v[i] = Hidden
			} else {
				v[i] = hide(v[i], depth+1)
			}
		}
	case string:
		return hideText(v, depth)
	}
	return v
}

// hideObject also reads objects that name what they hold, such as {"name": "Cookie", "value": …}.
func hideObject(o map[string]any, depth int) map[string]any {
	named := false
	for _, k := range []string{"name", "key", "header", "field"} {
		if s, ok := o[k].(string); ok && secretName(s) {
			named = true
		}
	}
	out := make(map[string]any, len(o))
	for k, v := range o {
		shown := hideText(k, depth)
		switch {
		case v == nil || v == "":
			out[shown] = v // there is nothing to hide
		case secretName(k), named && (fold(k) == "value" || fold(k) == "values"):
			out[shown] = Hidden
		default:
			out[shown] = hide(v, depth+1)
		}
	}
	return out
}

// flag reports whether the next argument of a command line is a secret, as in ["--password", "x"].
func flag(before any) bool {
	s, ok := before.(string)
	return ok && strings.HasPrefix(s, "-") && !strings.ContainsAny(s, "= \n:") && secretName(s)
}

var (
	separators = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")

	// telling are parts of folded names, and short names that say so only as a whole.
	telling = regexp.MustCompile(`passw|passphrase|pwd|secret|token|apikey|accesskey|privatekey|sshkey|signingkey|` +
		`encryptionkey|authorization|credential|cookie|signature|sessionid|^x?auth$|^authkey$|^jwt$|^bearer$|^otp$|^pin$`)
	// tellingQuery are names that say so only in addresses and forms.
	tellingQuery = regexp.MustCompile(`^(key|sig|code|sid|pass|pw)$`)
)

// fold makes x-api-key, X_API_KEY and xApiKey one name.
func fold(name string) string { return strings.ToLower(separators.Replace(name)) }

func secretName(name string) bool { return telling.MatchString(fold(name)) }

func secretParameter(name string) bool {
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	return secretName(name) || tellingQuery.MatchString(fold(name))
}
