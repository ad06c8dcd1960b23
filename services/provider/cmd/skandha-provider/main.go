// Command skandha-provider runs the provider as a separate process.
package main

import (
	"context"
	"time"

	"skandha.dev/services/internal/process"
	"skandha.dev/services/provider"
)

type service struct {
	process.Flags

	Provider     string        `env:"SKANDHA_PROVIDER" placeholder:"NAME" help:"offline, openai, anthropic, gemini or local; or several, separated by commas, in order of preference. Default: the one that the environment has keys for, else a local server, else offline."`
	Model        string        `env:"SKANDHA_MODEL" placeholder:"NAME" help:"Model to use. Default: OPENAI_MODEL, ANTHROPIC_MODEL or GEMINI_MODEL, or the server's."`
	BaseURL      string        `name:"base-url" env:"SKANDHA_BASE_URL" placeholder:"URL" help:"An OpenAI-compatible API, whose key is OPENAI_API_KEY; or Anthropic's or Gemini's, if that is the only provider. Default: OPENAI_BASE_URL, ANTHROPIC_BASE_URL or GOOGLE_GEMINI_BASE_URL, or the vendor's own."`
	Embedder     string        `env:"SKANDHA_EMBEDDER" placeholder:"PROVIDER/MODEL" help:"What computes embeddings: a model of openai, gemini, ollama or local, e.g. ollama/nomic-embed-text; or none. Default: providers.embedder of the configuration file, else none, and searches are lexical."`
	Transcriber  string        `env:"SKANDHA_TRANSCRIBER" placeholder:"PROVIDER/MODEL" help:"What turns speech into text: a model of openai or local, e.g. openai/whisper-1; command, which is providers.transcriber.command of the configuration file; or none. Default: providers.transcriber of the configuration file, else none."`
	Speaker      string        `env:"SKANDHA_SPEAKER" placeholder:"PROVIDER/MODEL" help:"What turns text into speech: a model of openai or local, e.g. openai/tts-1; command, which is providers.speaker.command of the configuration file; or none. Default: providers.speaker of the configuration file, else none."`
	OfflineRules string        `env:"SKANDHA_OFFLINE_RULES" type:"existingfile" placeholder:"FILE" help:"Rules of the offline provider instead of the built-in ones."`
	LocalURL     string        `name:"local-url" env:"SKANDHA_LOCAL_URL" placeholder:"URL" help:"Where to look for a local server; none: nowhere."`
	Config       string        `env:"SKANDHA_CONFIG" type:"existingfile" placeholder:"FILE" help:"Configuration file (YAML) whose section providers has prices and the budget."`
	Plugins      bool          `env:"SKANDHA_PLUGINS" default:"true" negatable:"" help:"Also offer the providers of plugins."`
	Slots        int           `env:"SKANDHA_SLOTS" default:"16" help:"Limit of concurrent requests."`
	Drain        time.Duration `env:"SKANDHA_DRAIN" default:"30s" help:"Grace period for running requests on shutdown."`
}

func (s *service) config() (provider.Config, error) {
	settings, err := provider.ReadSettings(s.Config)
	return provider.Config{
		Settings: settings,
		Provider: s.Provider, Model: s.Model, BaseURL: s.BaseURL, Embedder: s.Embedder,
		Transcriber: s.Transcriber, Speaker: s.Speaker, OfflineRules: s.OfflineRules,
		LocalURL: s.LocalURL, NoPlugins: !s.Plugins, Slots: s.Slots, DrainTimeout: s.Drain,
	}, err
}

// Check implements process.Service.
func (s *service) Check() error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	return cfg.Validate()
}

// Run implements process.Service.
func (s *service) Run(ctx context.Context, e *process.Env) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	return provider.Run(ctx, cfg, provider.Deps{Bus: e.Bus, Logger: e.Log})
}

func main() {
	var s service
	process.Main("skandha-provider", "Forwards core's requests to language models, over NATS.", &s.Flags, &s)
}
