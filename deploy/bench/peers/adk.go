package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sync/atomic"

	"github.com/glebarez/sqlite"
	"google.golang.org/adk/agent"
	"google.golang.org/adk/agent/llmagent"
	"google.golang.org/adk/model"
	"google.golang.org/adk/runner"
	"google.golang.org/adk/session"
	"google.golang.org/adk/session/database"
	"google.golang.org/adk/tool"
	"google.golang.org/adk/tool/functiontool"
	"google.golang.org/genai"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	peers "skandha.dev/deploy/bench/peers/protocol"
)

const adkApp, adkUser = "bench", "user"

// adk is adk-go in this process, with its database session service on SQLite: every event is a transaction.
func adk(_ context.Context, dir string) (peers.Hello, open, func(), error) {
	none := func() {}
	// A transaction takes the lock for writing at its begin: one that had read before could not wait for it.
	db := filepath.Join(dir, "sessions.db") + "?_txlock=immediate" +
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(60000)"
	pool, err := sql.Open(sqlite.DriverName, db)
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	pool.SetMaxOpenConns(4) // with one for each session, they wait for the lock by polling, and do a third less
	sessions, err := database.NewSessionService(sqlite.Dialector{Conn: pool}, &gorm.Config{
		PrepareStmt: true, Logger: logger.Default.LogMode(logger.Silent),
	})
	if err == nil {
		err = database.AutoMigrate(sessions)
	}
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	t, err := functiontool.New(functiontool.Config{Name: "noop", Description: "does nothing"},
		func(_ tool.Context, in adkArgs) (adkResult, error) {
			text, err := noop(in.N)
			return adkResult{text}, err
		})
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	a, err := llmagent.New(llmagent.Config{Name: "main", Model: adkModel{}, Tools: []tool.Tool{t}})
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	r, err := runner.New(runner.Config{AppName: adkApp, Agent: a, SessionService: sessions})
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	var opened atomic.Int64
	hello := peers.Hello{Version: version("google.golang.org/adk"), Durable: "SQLite, WAL, synchronous=FULL"}
	return hello, func(ctx context.Context) (peers.Session, error) {
		id := fmt.Sprintf("s%d", opened.Add(1))
		_, err := sessions.Create(ctx, &session.CreateRequest{AppName: adkApp, UserID: adkUser, SessionID: id})
		return always(func(ctx context.Context) error { return adkTurn(ctx, r, id) }), err
	}, none, nil
}

func adkTurn(ctx context.Context, r *runner.Runner, id string) error {
	said := genai.NewContentFromText(input, genai.RoleUser)
	var last *session.Event
	for e, err := range r.Run(ctx, adkUser, id, said, agent.RunConfig{}) {
		if err != nil {
			return err
		}
		last = e
	}
	if last == nil || last.Content == nil || len(last.Content.Parts) == 0 {
		return errors.New("the turn had no answer")
	}
	return check(step{Text: last.Content.Parts[0].Text})
}

type adkArgs struct {
	N int `json:"n"`
}

type adkResult struct {
	Text string `json:"text"`
}

// adkModel is the model.
type adkModel struct{}

// Name implements model.LLM.
func (adkModel) Name() string { return "zero" }

// GenerateContent implements model.LLM.
func (adkModel) GenerateContent(
	_ context.Context, req *model.LLMRequest, _ bool,
) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		part, result := req.Contents[len(req.Contents)-1].Parts[0], ""
		if part.FunctionResponse != nil {
			result = "ok"
		}
		s, err := think(part.Text, result)
		if err != nil {
			yield(nil, err)
			return
		}
		out := &genai.Part{Text: s.Text}
		if s.Tool != "" {
			out = genai.NewPartFromFunctionCall(s.Tool, map[string]any{"n": s.N})
		}
		yield(&model.LLMResponse{Content: genai.NewContentFromParts([]*genai.Part{out}, genai.RoleModel)}, nil)
	}
}
