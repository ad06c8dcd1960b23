// Package calc provides the tool math:evaluate: arithmetic on exact fractions, so
// that 0.1 + 0.2 is 0.3 and large numbers lose no digits. Only the square root
// of a number that is not a square is rounded, to 60 digits, and marked as inexact.
package calc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// Evaluate computes an expression.
func Evaluate() tools.Tool {
	return tools.New(tool.Spec{
		Name: "math:evaluate",
		Description: "Computes an arithmetic expression exactly, with fractions and numbers of any size. " +
			"Operators: + - * / % ^ (power, whole exponents) and parentheses; functions: sqrt(x), abs(x), floor(x), ceil(x), " +
			"round(x) or round(x, digits), min(a, b, …), max(a, b, …). " +
			"a % b is the remainder with the sign of b. Use it for any calculation that is not trivial. " +
			"Example: (1.05^10 - 1) * 2500",
		Args: json.RawMessage(`{"type":"object","properties":{
			"expression":{"type":"string","minLength":1,"maxLength":4096,"description":"the expression, e.g. 3 * (2 + 4.5)"}},
			"required":["expression"],"additionalProperties":false}`),
		Idempotent: true, Risk: tool.RiskLow, ScenarioTags: []string{"data_analysis"}, TimeoutMS: 10_000,
	}, func(ctx context.Context, _ tools.Call, args struct {
		Expression string `json:"expression"`
	},
	) tool.Result {
		v, err := eval(ctx, args.Expression)
		if err != nil {
			return tools.Fail(err)
		}
		return tool.OK(v.output())
	})
}

// The bounds: of an expression in bytes, of nesting, and of a number in bits.
const (
	maxExpression = 4096
	maxDepth      = 100
	maxBits       = 1 << 15 // some 9,800 decimal digits
	maxExponent   = 9_000   // of a literal's power of ten
	// rootBits is the precision of a root that is not exact: over 60 digits.
	rootBits = 256
	// digits is how many digits after the point are shown of a number without end.
	digits = 40
)

var errTooLarge = fmt.Errorf("a number became too large: at most %d binary digits are computed", maxBits)

// value is a number; inexact, if a root in it was rounded.
type value struct {
	*big.Rat
	inexact bool
}

// checked bounds a number. An inexact one keeps the precision of its root:
// further digits would mean nothing.
func (v value) checked() (value, error) {
	if v.inexact && max(v.Num().BitLen(), v.Denom().BitLen()) > 2*rootBits {
		v.Rat, _ = new(big.Float).SetPrec(rootBits).SetRat(v.Rat).Rat(nil)
	}
	if v.Num().BitLen() > maxBits || v.Denom().BitLen() > maxBits {
		return v, errTooLarge
	}
	return v, nil
}

// output returns the result for the model: the number in decimal, whether that is all of
// it, and the fraction if the decimal is not.
func (v value) output() map[string]any {
	prec, finite := v.FloatPrec() // digits after the point that it needs
	if v.inexact {
		finite, prec = false, digits
	}
	out := map[string]any{}
	if finite && prec <= 1000 {
		out["result"], out["exact"] = v.FloatString(prec), true
		return out
	}
	s := v.FloatString(digits)
	if v.Num().BitLen() < v.Denom().BitLen() { // small numbers keep significant digits
		s = new(big.Float).SetPrec(rootBits).SetRat(v.Rat).Text('g', digits)
	}
	if strings.Contains(s, ".") && !strings.Contains(s, "e") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	out["result"], out["exact"] = s, false
	if f := v.RatString(); !v.inexact && len(f) <= 200 {
		out["fraction"] = f
	}
	return out
}

// binary applies an operator.
func binary(op byte, a, b value) (value, error) {
	r := value{new(big.Rat), a.inexact || b.inexact}
	switch op {
	case '+':
		r.Add(a.Rat, b.Rat)
	case '-':
		r.Sub(a.Rat, b.Rat)
	case '*':
		r.Mul(a.Rat, b.Rat)
	case '/':
		if b.Sign() == 0 {
			return r, errors.New("division by zero")
		}
		r.Quo(a.Rat, b.Rat)
	case '%':
		if b.Sign() == 0 {
			return r, errors.New("remainder of a division by zero")
		}
		q := floor(new(big.Rat).Quo(a.Rat, b.Rat))
		r.Sub(a.Rat, q.Mul(q, b.Rat))
	case '^':
		return power(a, b)
	}
	return r.checked()
}

func power(a, b value) (value, error) {
	if !b.IsInt() {
		return a, errors.New("the exponent of ^ must be a whole number; use sqrt for roots")
	}
	if !b.Num().IsInt64() {
		return a, errTooLarge
	}
	n, negative := b.Num().Int64(), b.Sign() < 0
	if negative {
		n = -n
		if a.Sign() == 0 {
			return a, errors.New("division by zero: 0 to a negative power")
		}
	}
	if n < 0 || n > maxBits && !isUnit(a.Rat) {
		return a, errTooLarge
	}
	if bits := int64(max(a.Num().BitLen(), a.Denom().BitLen()) - 1); bits*n > maxBits {
		return a, errTooLarge
	}
	exp := big.NewInt(n)
	if isUnit(a.Rat) {
		exp.SetInt64(n & 1)
	}
	num, den := new(big.Int).Exp(a.Num(), exp, nil), new(big.Int).Exp(a.Denom(), exp, nil)
	if negative {
		num, den = den, num
	}
	return value{new(big.Rat).SetFrac(num, den), a.inexact}.checked()
}

// isUnit reports whether all powers of r have the same size.
func isUnit(r *big.Rat) bool { return r.IsInt() && r.Num().BitLen() <= 1 }

// floor returns the largest whole number that is not above r.
func floor(r *big.Rat) *big.Rat {
	// Denominators are positive, and then Euclidean division rounds down.
	return new(big.Rat).SetInt(new(big.Int).Div(r.Num(), r.Denom()))
}
