package lexical_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"skandha.dev/services/internal/lexical"
)

func TestTerms(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"?! -- …":                              "",
		"The e-mails were sent to Ann's house": "e mail sent ann hous",
		"Searching searches searched":          "search search search",
		"file_system:read_file":                "file system read file",
		"sendEmail":                            "sendemail send email",
		"HTTPServer v2":                        "httpserver http server v2",
		"GitHub":                               "github git hub",
		"ＦＵＬＬ width ｶﾀｶﾅ":                      "full width カタ タカ カナ",
		"Straße café ÉCOLE":                    "straße café école",
		"cafe\u0301":                           "café",
		"寄信給他":                                 "寄信 信给 给他",
		"用Gmail發信":                             "用 gmail 发信",
		"メールを送る":                               "メー ール ルを を送 送る",
		"人々":                                   "人々",
		"이메일 보내기":                              "이메 메일 보내 내기",
		"ส่งอีเมล":                             "ส่ ่ง งอ อี ีเ เม มล",
		"Привет мир":                           "привет мир",
		"3 + 4 = 7":                            "3 4 7",
		"a\xff\xfeb c\xc3":                     "b c",
		"\u0301\u0301x":                        "x",
	} {
		if got := strings.Join(lexical.Terms(text), " "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestFormsOfHanCharactersAreOne(t *testing.T) {
	for _, forms := range [][]string{
		{"檢索圖書館", "检索图书馆", "検索図書館"},
		{"會議記錄", "会议记录", "会議記録"},
		{"臺灣歷史", "台湾历史", "台湾歴史"},
		{"翻譯檔案", "翻译档案", "翻訳档案"},
		{"恢復頭髮", "恢复头发", "恢復頭髪"},
	} {
		want := lexical.Terms(forms[0])
		for _, f := range forms[1:] {
			if got := lexical.Terms(f); !slices.Equal(got, want) {
				t.Errorf("%s and %s: %q and %q", forms[0], f, want, got)
			}
		}
	}
}

// Hostile texts cost no more than others, and the terms are valid.
func TestTermsOfAnyBytes(t *testing.T) {
	const size = 1 << 20
	for name, text := range map[string]string{
		"one word":        strings.Repeat("x", size),
		"one name":        strings.Repeat("aB", size/2),
		"invalid bytes":   strings.Repeat("\xff", size),
		"combining marks": "a" + strings.Repeat("\u0301", size/2),
		"marks on Han":    "漢" + strings.Repeat("\u3099", size/3),
		"Han":             strings.Repeat("漢", size/3),
		"ligatures":       strings.Repeat("\ufdfa", size/54), // 18 letters each
		"zeros":           strings.Repeat("\x00", size),
	} {
		for _, term := range lexical.Terms(text) {
			if !utf8.ValidString(term) || len(term) == 0 || utf8.RuneCountInString(term) > 64 {
				t.Errorf("%s: term %.100q", name, term)
				break
			}
		}
	}
}

func FuzzTerms(f *testing.F) {
	for _, seed := range []string{"sendEmail to Ann", "檢索a検索", "\xff\u0301x", "e\u0301ー々"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, term := range lexical.Terms(text) {
			if term == "" || !utf8.ValidString(term) || strings.ContainsAny(term, " \t\n\"*") {
				t.Errorf("term %q", term)
			}
		}
	})
}

func index(texts ...string) *lexical.Index {
	b := lexical.NewBuilder()
	for _, text := range texts {
		b.Add(lexical.Terms(text)...)
	}
	return b.Index()
}

func TestSearch(t *testing.T) {
	x := index("send a message", "send an e-mail to somebody", "send send send", "read a file", "")
	for query, want := range map[string][]int{
		"reading files":          {3},
		"send":                   {2, 0, 1},
		"mail":                   {1},
		"message message e-mail": {1, 0},
		"zebra":                  nil,
		"":                       nil,
	} {
		var got []int
		for _, h := range x.Search(lexical.Terms(query), 9) {
			got = append(got, h.Text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", query, got, want)
		}
	}
	for _, limit := range []int{-1, 0, 1, 2} {
		if got := x.Search([]string{"send"}, limit); len(got) != max(limit, 0) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
}

func TestAmongEqualsTheLastOneIsFirst(t *testing.T) {
	x := index("milk", "milk", "tea", "milk")
	var got []int
	for _, h := range x.Search([]string{"milk"}, 9) {
		got = append(got, h.Text)
	}
	if !slices.Equal(got, []int{3, 1, 0}) {
		t.Errorf("got %v", got)
	}
}

func TestRareTermsCountMore(t *testing.T) {
	x := index("a1 b1", "a1", "a1")
	if x.Weight("b1") <= x.Weight("a1") || x.Weight("c1") != 0 {
		t.Errorf("weights %v, %v, %v", x.Weight("b1"), x.Weight("a1"), x.Weight("c1"))
	}
}

// An index for one query gives the same answer to it as one of all terms.
func TestAnIndexOfOneQuery(t *testing.T) {
	texts := []string{"send a message", "send an e-mail to somebody else", "read a file"}
	query := lexical.Terms("send the file")
	b := lexical.NewBuilder(query...)
	for _, text := range texts {
		b.Add(lexical.Terms(text)...)
	}
	if got, want := b.Index().Search(query, 9), index(texts...).Search(query, 9); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestConcurrentSearches(t *testing.T) {
	x := index("send a message", "検索する")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if len(x.Search(lexical.Terms("檢索 message"), 2)) != 2 {
					t.Error("not found")
				}
			}
		})
	}
	wg.Wait()
}
