package calc

import (
	"errors"
	"fmt"
	"math/big"
)

// function is a named function; max < 0 means any number of arguments from min on.
type function struct {
	min, max int
	apply    func(args []value) (value, error)
}

var functions = map[string]function{
	"sqrt":  {1, 1, sqrt},
	"abs":   {1, 1, func(a []value) (value, error) { return value{new(big.Rat).Abs(a[0].Rat), a[0].inexact}, nil }},
	"floor": {1, 1, func(a []value) (value, error) { return value{floor(a[0].Rat), a[0].inexact}, nil }},
	"ceil":  {1, 1, ceil},
	"round": {1, 2, round},
	"min":   {1, -1, func(a []value) (value, error) { return extreme(a, -1), nil }},
	"max":   {1, -1, func(a []value) (value, error) { return extreme(a, 1), nil }},
}

func call(name string, args []value) (value, error) {
	f, ok := functions[name]
	switch {
	case !ok:
		return value{}, fmt.Errorf("unknown function %q; want sqrt, abs, floor, ceil, round, min or max", name)
	case len(args) < f.min || f.max >= 0 && len(args) > f.max:
		want := fmt.Sprint(f.min)
		switch {
		case f.max < 0:
			want += " or more"
		case f.max > f.min:
			want += " or " + fmt.Sprint(f.max)
		}
		return value{}, fmt.Errorf("%s takes %s arguments, not %d", name, want, len(args))
	}
	v, err := f.apply(args)
	if err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	return v.checked()
}

func sqrt(a []value) (value, error) {
	x := a[0]
	if x.Sign() < 0 {
		return x, errors.New("a negative number has no real square root")
	}
	num, den := new(big.Int).Sqrt(x.Num()), new(big.Int).Sqrt(x.Denom())
	if square(num).Cmp(x.Num()) == 0 && square(den).Cmp(x.Denom()) == 0 {
		return value{new(big.Rat).SetFrac(num, den), x.inexact}, nil
	}
	f := new(big.Float).SetPrec(rootBits + 64).SetRat(x.Rat)
	r, _ := f.Sqrt(f).SetPrec(rootBits).Rat(nil)
	return value{r, true}, nil
}

func square(n *big.Int) *big.Int { return new(big.Int).Mul(n, n) }

func ceil(a []value) (value, error) {
	r := floor(new(big.Rat).Neg(a[0].Rat))
	return value{r.Neg(r), a[0].inexact}, nil
}

// round rounds half away from zero, to whole numbers or to digits after the point.
func round(a []value) (value, error) {
	scale := big.NewRat(1, 1)
	if len(a) == 2 {
		d := a[1]
		if !d.IsInt() || !d.Num().IsInt64() || d.Num().Int64() < -1000 || d.Num().Int64() > 1000 {
			return d, errors.New("the number of digits must be a whole number from -1000 to 1000")
		}
		n := d.Num().Int64()
		scale.SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(n, -n)), nil))
		if n < 0 {
			scale.Inv(scale)
		}
	}
	x := new(big.Rat).Mul(a[0].Rat, scale)
	negative := x.Sign() < 0
	x = floor(x.Add(x.Abs(x), big.NewRat(1, 2)))
	if negative {
		x.Neg(x)
	}
	return value{x.Quo(x, scale), a[0].inexact}, nil
}

func extreme(a []value, sign int) value {
	best := a[0]
	for _, v := range a[1:] {
		if v.Cmp(best.Rat) == sign {
			best = v
		}
	}
	return best
}
