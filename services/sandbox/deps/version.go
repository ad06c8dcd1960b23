package deps

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// version is the regular expression of PEP 440's appendix B.
var version = regexp.MustCompile(`^v?` +
	`(?:([0-9]+)!)?` + // epoch
	`([0-9]+(?:\.[0-9]+)*)` + // release
	`(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?([0-9]+)?)?` +
	`(?:-([0-9]+)|[-_.]?(post|rev|r)[-_.]?([0-9]+)?)?` +
	`(?:[-_.]?(dev)[-_.]?([0-9]+)?)?` +
	`(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?$`)

var phases = map[string]string{
	"alpha": "a", "a": "a", "beta": "b", "b": "b", "preview": "rc", "pre": "rc", "c": "rc", "rc": "rc",
}

// parseVersion parses the version after an operator and returns its normal form as in PEP
// 440.
func parseVersion(operator, text string) (string, error) {
	if operator == "===" {
		return "", errors.New(`=== compares text, not versions; want == and a version, such as "==2.1.0"`)
	}
	text, series := strings.CutSuffix(text, ".*")
	m := version.FindStringSubmatch(strings.ToLower(text))
	if m == nil {
		return "", fmt.Errorf("%s is not a version as in PEP 440; want one such as \"2\", \"2.1.0\" or \"2.1rc1\"",
			quote(text))
	}
	epoch, release, dev, local := m[1], m[2], m[8], m[10]
	equal := operator == "==" || operator == "!="
	switch {
	case series && !equal:
		return "", fmt.Errorf("%s does not accept .*; want == or !=, or a whole version", operator)
	case series && (m[3]+m[5]+m[6]+dev+local != ""):
		return "", fmt.Errorf("%s.* is not a version as in PEP 440; want .* after a release, such as \"==2.1.*\"",
			quote(text))
	case local != "" && !equal:
		return "", fmt.Errorf("%s does not accept a local version (the part after +); want == or !=", operator)
	case operator == "~=" && !strings.Contains(release, "."):
		return "", errors.New(`~= requires at least two numbers, such as "~=2.1"`)
	}
	out := releases(release)
	if epoch = number(epoch); epoch != "0" {
		out = epoch + "!" + out
	}
	if m[3] != "" {
		out += phases[m[3]] + number(m[4])
	}
	if m[5] != "" || m[6] != "" {
		out += ".post" + number(m[5]+m[7])
	}
	if dev != "" {
		out += ".dev" + number(m[9])
	}
	if local != "" {
		out += "+" + releases(separator.ReplaceAllString(local, "."))
	}
	if series {
		out += ".*"
	}
	return out, nil
}

// number returns the decimal number without leading zeros; an empty one is 0.
func number(s string) string {
	if s = strings.TrimLeft(s, "0"); s == "" {
		return "0"
	}
	return s
}

// releases strips leading zeros from the parts that are numbers.
func releases(dotted string) string {
	parts := strings.Split(dotted, ".")
	for i, p := range parts {
		if strings.Trim(p, "0123456789") == "" {
			parts[i] = number(p)
		}
	}
	return strings.Join(parts, ".")
}
