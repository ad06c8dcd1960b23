package engine

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// cue is a word that tells the scenario of a request. A verb is also its action.
type cue struct {
	word     string
	scenario string
	verb     bool
}

// The scenarios, as in [tool.Scenarios].
const (
	retrieval = "information_retrieval"
	talk      = "communication"
	execution = "task_execution"
	analysis  = "data_analysis"
	creation  = "creative_work"
	files     = "file_management"
)

// The cues, by scenario, in English, Chinese (both scripts) and Japanese.
var cues = slices.Concat(
	verbs(retrieval, "search", "find", "look up", "fetch", "google", "查", "搜索", "搜尋", "查询", "查詢", "検索", "調べ", "探し"),
	nouns(retrieval, "what is", "who is", "news", "weather", "http://", "https://", "新闻", "新聞", "天气", "天氣", "ニュース", "天気"),
	verbs(talk, "send", "reply", "notify", "message", "email", "call", "invite", "发送", "發送", "寄", "回复", "回覆", "通知", "送信", "送って", "返信"),
	nouns(talk, "mail", "chat", "sms", "邮件", "郵件", "短信", "简讯", "簡訊", "メール", "メッセージ"),
	verbs(execution, "run", "execute", "schedule", "start", "stop", "remind", "执行", "執行", "运行", "運行", "安排", "提醒", "実行", "予約", "起動"),
	nouns(execution, "task", "job", "timer", "任务", "任務", "タスク"),
	verbs(analysis, "calculate", "compute", "analyze", "analyse", "plot", "sum", "average", "count", "计算", "計算", "分析", "统计", "統計", "集計"),
	nouns(analysis, "csv", "chart", "statistics", "数据", "數據", "データ", "グラフ"),
	verbs(creation, "write", "draft", "compose", "draw", "translate", "撰写", "撰寫", "写一", "寫一", "画", "畫", "翻译", "翻譯", "翻訳", "描いて", "書いて"),
	nouns(creation, "poem", "story", "slogan", "诗", "詩", "故事", "物語"),
	verbs(files, "open", "save", "copy", "move", "delete", "rename", "list", "read", "打开", "打開", "保存", "复制", "複製", "移动", "移動", "删除", "刪除", "读取", "讀取", "開いて", "削除", "コピー", "読んで"),
	nouns(files, "file", "folder", "directory", "文件夹", "資料夾", "文件", "檔案", "目录", "目錄", "ファイル", "フォルダ"),
)

func verbs(scenario string, words ...string) []cue { return cuesOf(scenario, true, words) }
func nouns(scenario string, words ...string) []cue { return cuesOf(scenario, false, words) }

func cuesOf(scenario string, verb bool, words []string) []cue {
	out := make([]cue, len(words))
	for i, w := range words {
		out[i] = cue{w, scenario, verb}
	}
	return out
}

// in returns where the cue begins in a text in lower case, or -1. Words of letters with
// spaces between them must be whole.
func (c cue) in(text string) int {
	for at := 0; ; {
		i := strings.Index(text[at:], c.word)
		if i < 0 {
			return -1
		}
		i += at
		if c.word[0] >= utf8.RuneSelf || whole(text, i, i+len(c.word)) {
			return i
		}
		at = i + len(c.word)
	}
}

// whole reports whether text[from:to] is not inside of a longer word.
func whole(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	return !latin(before) && !latin(after) || !unicode.IsLetter(rune(text[to-1]))
}

// latin reports whether a character can continue a word that is written with spaces.
func latin(r rune) bool {
	return r < 0x2e80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}

// Rules are the implementation of the steps without a model.
type Rules struct{}

// Scenario implements [Classifier]. A request whose words hint equally at two scenarios
// belongs to none.
func (Rules) Scenario(text string) string {
	text = strings.ToLower(text)
	hits := map[string]int{}
	for _, c := range cues {
		if c.in(text) >= 0 {
			hits[c.scenario]++
		}
	}
	best, second := "", 0
	for name, n := range hits {
		switch {
		case n > hits[best]:
			best, second = name, hits[best]
		case n > second && name != best:
			second = n
		}
	}
	if hits[best] == second {
		return ""
	}
	return best
}

// then separates the parts of a request with several intents.
var then = regexp.MustCompile(`(?i)[,，、;；。.]?\s*\b(?:and then|after that|afterwards|then)\b[,\s]*|[;；]\s*` +
	`|[,，。、]?\s*(?:然后|然後|接着|接著|之后再|之後再|それから|その後|次に|してから)[,，、]?\s*`)

// Intents implements [Recognizer]. It separates a request at words such as "then", which do
// not count inside of quotes.
func (Rules) Intents(text string) []Intent {
	var out []Intent
	from := 0
	masked := mask(text)
	add := func(part string) {
		if part = strings.TrimSpace(part); part == "" {
			return
		}
		in := Intent{ID: string(rune('1' + len(out))), Text: part}
		in.Action, in.Object = actionOf(part)
		out = append(out, in)
	}
	for _, at := range then.FindAllStringIndex(masked, maxIntents-1) {
		add(text[from:at[0]])
		from = at[1]
	}
	if add(text[from:]); len(out) == 0 {
		return []Intent{{ID: "1", Text: text}}
	}
	return out
}

// maxIntents is how many intents the rules separate; the last one is the rest.
const maxIntents = 8

// actionOf returns the first verb that the rules know, and what follows it.
func actionOf(text string) (action, object string) {
	lower := strings.ToLower(text)
	if len(lower) != len(text) {
		return "", text // an index into one is none into the other
	}
	first := -1
	for _, c := range cues {
		if at := c.in(lower); c.verb && at >= 0 && (first < 0 || at < first || at == first && len(c.word) > len(action)) {
			first, action = at, c.word
		}
	}
	if first < 0 {
		return "", text
	}
	after := strings.Trim(text[first+len(action):], " \t\n.,。，、!！?？")
	return action, cmp.Or(after, strings.Trim(text[:first], " \t\n.,。，、!！?？"))
}
