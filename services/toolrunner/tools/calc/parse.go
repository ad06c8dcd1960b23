package calc

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parser evaluates while it reads; the grammar is
//
//	sum     = product {("+" | "-") product}
//	product = unary {("*" | "/" | "%") unary}
//	unary   = ("-" | "+") unary | power
//	power   = primary ["^" unary]                  so that -2^2 is -4 and 2^-1 is 1/2
//	primary = number | "(" sum ")" | name "(" sum {"," sum} ")"
type parser struct {
	ctx   context.Context //nolint:containedctx // of this one evaluation
	text  string
	at    int
	depth int
}

func eval(ctx context.Context, expression string) (value, error) {
	if len(expression) > maxExpression {
		return value{}, fmt.Errorf("the expression has %d bytes, at most %d are allowed", len(expression), maxExpression)
	}
	p := &parser{ctx: ctx, text: expression}
	if p.peek() == 0 {
		return value{}, errors.New("the expression is empty")
	}
	v, err := p.sum()
	if err == nil && p.peek() != 0 {
		err = p.unexpected("an operator")
	}
	return v, err
}

// peek skips spaces and returns the next byte, 0 at the end.
func (p *parser) peek() byte {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *parser) unexpected(want string) error {
	if p.at >= len(p.text) {
		return fmt.Errorf("the expression ends where %s is expected", want)
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return fmt.Errorf("%q at position %d: %s is expected", r, p.at+1, want)
}

func (p *parser) sum() (value, error) { return p.chain("+-", p.product) }

func (p *parser) product() (value, error) { return p.chain("*/%", p.unary) }

func (p *parser) chain(ops string, operand func() (value, error)) (value, error) {
	v, err := operand()
	for err == nil {
		op := p.peek()
		if op == 0 || strings.IndexByte(ops, op) < 0 {
			return v, nil
		}
		start := p.at
		p.at++
		var w value
		if w, err = operand(); err == nil {
			v, err = p.apply(op, start, v, w)
		}
	}
	return v, err
}

func (p *parser) apply(op byte, at int, v, w value) (value, error) {
	if err := p.ctx.Err(); err != nil {
		return v, err
	}
	r, err := binary(op, v, w)
	if err != nil {
		err = fmt.Errorf("%q at position %d: %w", op, at+1, err)
	}
	return r, err
}

// deeper bounds the recursion.
func (p *parser) deeper(f func() (value, error)) (value, error) {
	if p.depth++; p.depth > maxDepth {
		return value{}, fmt.Errorf("the expression is nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	return f()
}

func (p *parser) unary() (value, error) {
	op := p.peek()
	if op != '-' && op != '+' {
		return p.power()
	}
	p.at++
	v, err := p.deeper(p.unary)
	if err == nil && op == '-' {
		v.Rat = new(big.Rat).Neg(v.Rat)
	}
	return v, err
}

func (p *parser) power() (value, error) {
	base, err := p.primary()
	if err != nil || p.peek() != '^' {
		return base, err
	}
	start := p.at
	p.at++
	exp, err := p.deeper(p.unary)
	if err != nil {
		return base, err
	}
	return p.apply('^', start, base, exp)
}

func (p *parser) primary() (value, error) {
	switch c := p.peek(); {
	case c == '(':
		p.at++
		v, err := p.deeper(p.sum)
		if err == nil {
			err = p.expect(')')
		}
		return v, err
	case isDigit(c) || c == '.':
		return p.number()
	case isLetter(c):
		return p.function()
	default:
		return value{}, p.unexpected("a number")
	}
}

func (p *parser) expect(c byte) error {
	if p.peek() != c {
		return p.unexpected(strconv.QuoteRune(rune(c)))
	}
	p.at++
	return nil
}

func (p *parser) function() (value, error) {
	start := p.at
	for p.at < len(p.text) && (isLetter(p.text[p.at]) || isDigit(p.text[p.at])) {
		p.at++
	}
	name := p.text[start:p.at]
	if p.peek() != '(' {
		return value{}, fmt.Errorf("%q at position %d is neither a number nor a function call", name, start+1)
	}
	p.at++
	var args []value
	for p.peek() != ')' || len(args) > 0 {
		v, err := p.deeper(p.sum)
		if err != nil {
			return v, err
		}
		args = append(args, v)
		if p.peek() != ',' {
			break
		}
		p.at++
	}
	if err := p.expect(')'); err != nil {
		return value{}, err
	}
	return call(name, args)
}

// number reads 12, 1.5, .5, 1_000, 2e10. A comma is not a decimal point.
func (p *parser) number() (value, error) {
	start := p.at
	p.digits()
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		p.digits()
	}
	exp := 0
	if rest := p.text[p.at:]; len(rest) > 1 && (rest[0] == 'e' || rest[0] == 'E') {
		end := 1
		if rest[end] == '+' || rest[end] == '-' {
			end++
		}
		for end < len(rest) && isDigit(rest[end]) {
			end++
		}
		var err error
		if exp, err = strconv.Atoi(rest[1:end]); err != nil || exp > maxExponent || exp < -maxExponent {
			return value{}, fmt.Errorf("the exponent of the number at position %d must be from -%d to %d", start+1, maxExponent,
				maxExponent)
		}
		p.at += end
	}
	r, ok := new(big.Rat).SetString(strings.ReplaceAll(p.text[start:p.at], "_", ""))
	if !ok || p.at < len(p.text) && (isLetter(p.text[p.at]) || p.text[p.at] == '.') {
		return value{}, fmt.Errorf("%q at position %d is not a number", p.text[start:min(p.at+1, len(p.text))], start+1)
	}
	return value{r, false}.checked()
}

func (p *parser) digits() {
	for p.at < len(p.text) && (isDigit(p.text[p.at]) || p.text[p.at] == '_') {
		p.at++
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
