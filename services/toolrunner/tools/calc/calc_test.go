package calc

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

func evaluate(t testing.TB, expression string) tool.Result {
	t.Helper()
	args, _ := json.Marshal(map[string]string{"expression": expression})
	return Evaluate().Run(context.Background(), tools.Call{Args: args})
}

func TestEvaluate(t *testing.T) {
	for expression, want := range map[string]string{
		"1+2*3":                `{"exact":true,"result":"7"}`,
		"0.1 + 0.2":            `{"exact":true,"result":"0.3"}`,
		"(1+2)*3":              `{"exact":true,"result":"9"}`,
		"7/2":                  `{"exact":true,"result":"3.5"}`,
		"1/3":                  `{"exact":false,"fraction":"1/3","result":"0.3333333333333333333333333333333333333333"}`,
		"10/3":                 `{"exact":false,"fraction":"10/3","result":"3.3333333333333333333333333333333333333333"}`,
		"1/3 + 2/3":            `{"exact":true,"result":"1"}`,
		"2^100":                `{"exact":true,"result":"1267650600228229401496703205376"}`,
		"2^3^2":                `{"exact":true,"result":"512"}`,
		"-2^2":                 `{"exact":true,"result":"-4"}`,
		"2^-1":                 `{"exact":true,"result":"0.5"}`,
		"(-1)^1000000007":      `{"exact":true,"result":"-1"}`,
		"0^0":                  `{"exact":true,"result":"1"}`,
		"--3":                  `{"exact":true,"result":"3"}`,
		"8-3-2":                `{"exact":true,"result":"3"}`,
		"7 % 3":                `{"exact":true,"result":"1"}`,
		"-7 % 3":               `{"exact":true,"result":"2"}`,
		"7 % -3":               `{"exact":true,"result":"-2"}`,
		"5.5 % 2":              `{"exact":true,"result":"1.5"}`,
		"sqrt(16)":             `{"exact":true,"result":"4"}`,
		"sqrt(0.25)":           `{"exact":true,"result":"0.5"}`,
		"sqrt(2)":              `{"exact":false,"result":"1.4142135623730950488016887242096980785697"}`,
		"abs(-3.5)":            `{"exact":true,"result":"3.5"}`,
		"round(2.5)":           `{"exact":true,"result":"3"}`,
		"round(-2.5)":          `{"exact":true,"result":"-3"}`,
		"round(3.14159, 2)":    `{"exact":true,"result":"3.14"}`,
		"round(1234, -2)":      `{"exact":true,"result":"1200"}`,
		"floor(-1.5)":          `{"exact":true,"result":"-2"}`,
		"ceil(-1.5)":           `{"exact":true,"result":"-1"}`,
		"min(3, 1, 2)":         `{"exact":true,"result":"1"}`,
		"max(3, 1 + 9, 2)":     `{"exact":true,"result":"10"}`,
		"1_000 * 2e3":          `{"exact":true,"result":"2000000"}`,
		".5e-1":                `{"exact":true,"result":"0.05"}`,
		"1e-50/3":              `{"exact":false,"fraction":"1/300000000000000000000000000000000000000000000000000","result":"3.333333333333333333333333333333333333333e-51"}`,
		"(1.05^10 - 1) * 2500": `{"exact":true,"result":"1572.236566943603515625"}`,
	} {
		if got := evaluate(t, expression); !got.Success || string(got.Data) != want {
			t.Errorf("%s: got %s %v, want %s", expression, got.Data, got.Error, want)
		}
	}
}

func TestRoundedRootsDoNotGrow(t *testing.T) {
	got := evaluate(t, strings.Repeat("sqrt(2)*", 400)+"1")
	if want := `"result":"16069380442589902755419620923411626025222029937827`; !strings.Contains(string(got.Data), want) {
		t.Fatalf("got %s %v, want 2^200", got.Data, got.Error)
	}
}

func TestErrorsSayWhatAndWhere(t *testing.T) {
	for expression, want := range map[string]string{
		"   ":                    "is empty",
		"1 +":                    "ends where a number is expected",
		"1 2":                    `'2' at position 3: an operator is expected`,
		"(1":                     `ends where ')' is expected`,
		"1)":                     `')' at position 2`,
		"1/0":                    `'/' at position 2: division by zero`,
		"1 % 0":                  "division by zero",
		"0^-1":                   "division by zero",
		"2^0.5":                  "use sqrt",
		"sqrt(-1)":               "sqrt: a negative number",
		"sqrt(1,2)":              "sqrt takes 1 arguments, not 2",
		"min()":                  "min takes 1 or more arguments, not 0",
		"round(1,2,3)":           "round takes 1 or 2 arguments, not 3",
		"round(1,0.5)":           "round: the number of digits",
		"foo(1)":                 `unknown function "foo"`,
		"x + 1":                  `"x" at position 1 is neither`,
		"1.2.3":                  "is not a number",
		".":                      "is not a number",
		"12abc":                  "is not a number",
		"3 × 4":                  "'×' at position 3",
		"50%":                    "ends where a number is expected",
		"1e99999":                "exponent of the number at position 1",
		"1e":                     "is not a number",
		"9^9^9^9":                "too large",
		"10^100000":              "too large",
		"2^99999999999999999999": "too large",
		"os.Exit(1)":             `"os" at position 1`,
		strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200): "nested deeper",
		strings.Repeat("-", 200) + "1":                            "nested deeper",
		strings.Repeat("1+", 3000) + "1":                          "at most 4096",
	} {
		got := evaluate(t, expression)
		if got.Success || got.Error.Code != tool.CodeFailed || !strings.Contains(got.Error.Message, want) {
			t.Errorf("%.40s: got %s %v, want an error with %q", expression, got.Data, got.Error, want)
		}
	}
}

func TestACancelledCallEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := eval(ctx, "1+1"); err == nil {
		t.Fatal("it computed")
	}
}

func FuzzEvaluate(f *testing.F) {
	for _, s := range []string{
		"1+2*3", "sqrt(2)^-3", "min(1,2)%3", "1e9000*1e9000", "((((", "round(1/3, 1000)", "-.5e-3_0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := eval(context.Background(), s)
		if err == nil {
			if _, err := json.Marshal(v.output()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
