package listener

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/listener/camera"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/cron"
	"skandha.dev/services/listener/discord"
	"skandha.dev/services/listener/email"
	"skandha.dev/services/listener/irc"
	"skandha.dev/services/listener/matrix"
	"skandha.dev/services/listener/microphone"
	"skandha.dev/services/listener/mqtt"
	"skandha.dev/services/listener/push"
	"skandha.dev/services/listener/sensor"
	"skandha.dev/services/listener/slack"
	"skandha.dev/services/listener/stdio"
	"skandha.dev/services/listener/telegram"
	"skandha.dev/services/listener/webhook"
	"skandha.dev/services/listener/websocket"
	"skandha.dev/services/listener/xmpp"
)

// configured is one listener of the configuration. Errors of its functions begin with the field.
type configured struct {
	kind, name string
	insecure   bool // needs no credentials
	check      func() error
	secrets    func() error // reads the secrets that it names; nil: none
	open       func(*Service) (contract.Listener, error)
}

func (c configured) path() string { return c.kind + "." + c.name }

// all lists the listeners, by kind and name.
func (c Config) all() []configured {
	return slices.Concat(
		each("stdin", c.Stdin, func(n subject.Writer, l stdio.Config) configured {
			return configured{check: func() error { return l.Validate(n) }, open: func(s *Service) (contract.Listener, error) {
				return stdio.New(n, l, stdio.Deps{In: s.deps.Stdin, Out: s.deps.Stdout, Logger: s.deps.Logger})
			}}
		}),
		each("webhook", c.Webhook, func(n subject.Writer, l webhook.Config) configured {
			return configured{
				insecure: l.Insecure, check: l.Validate, secrets: l.CheckSecrets, open: func(s *Service) (contract.Listener, error) {
					return webhook.New(n, l, webhook.Deps{Logger: s.deps.Logger, Stats: &s.stats.webhook})
				},
			}
		}),
		each("websocket", c.WebSocket, func(n subject.Writer, l websocket.Config) configured {
			return configured{
				insecure: l.Insecure, check: l.Validate, secrets: l.CheckSecrets, open: func(s *Service) (contract.Listener, error) {
					return websocket.New(n, l, websocket.Deps{Logger: s.deps.Logger, Stats: &s.stats.websocket})
				},
			}
		}),
		each("cron", c.Cron, func(n subject.Writer, l cron.Config) configured {
			return configured{check: l.Validate, open: func(s *Service) (contract.Listener, error) {
				return cron.New(n, l, cron.Deps{Bus: s.deps.Bus, Logger: s.deps.Logger, Stats: &s.stats.cron})
			}}
		}),
		each("email", c.Email, func(n subject.Writer, l email.Config) configured {
			check := func() error { return errors.Join(l.Validate(), c.hasAccount(l.Account)) }
			return configured{check: check, open: func(s *Service) (contract.Listener, error) { return s.openEmail(n, l) }}
		}),
		each("push", c.Push, func(n subject.Writer, l push.Config) configured {
			return configured{check: l.Validate, secrets: l.CheckSecrets, open: func(s *Service) (contract.Listener, error) {
				return push.New(n, l, s.deps.Logger)
			}}
		}),
		each("mqtt", c.MQTT, func(n subject.Writer, l mqtt.Config) configured {
			return configured{check: func() error { return l.Validate(n) }, open: func(s *Service) (contract.Listener, error) {
				deps := mqtt.Deps{Bus: s.deps.Bus, Brokers: c.Brokers, Logger: s.deps.Logger, Stats: &s.stats.mqtt}
				return mqtt.New(n, l, deps)
			}}
		}),
		each("sensor", c.Sensor, func(n subject.Writer, l sensor.Config) configured {
			return configured{check: l.Validate, secrets: l.CheckSecrets, open: func(s *Service) (contract.Listener, error) {
				return sensor.New(n, l, sensor.Deps{Bus: s.deps.Bus, Logger: s.deps.Logger, Stats: &s.stats.sensor})
			}}
		}),
		each("camera", c.Camera, func(n subject.Writer, l camera.Config) configured {
			check := func() error { return l.Validate(n) }
			return configured{check: check, secrets: l.CheckSecrets, open: func(s *Service) (contract.Listener, error) {
				return camera.New(n, l, camera.Deps{Bus: s.deps.Bus, Logger: s.deps.Logger, Stats: &s.stats.camera})
			}}
		}),
		each("microphone", c.Microphone, func(n subject.Writer, l microphone.Config) configured {
			return configured{check: l.Validate, secrets: l.CheckSecrets, open: func(s *Service) (contract.Listener, error) {
				return microphone.New(n, l, microphone.Deps{Bus: s.deps.Bus, Logger: s.deps.Logger, Stats: &s.stats.microphone})
			}}
		}),
		chats("irc", c.IRC, irc.New), chats("xmpp", c.XMPP, xmpp.New), chats("matrix", c.Matrix, matrix.New),
		chats("telegram", c.Telegram, telegram.New), chats("discord", c.Discord, discord.New),
		chats("slack", c.Slack, slack.New),
	)
}

// each lists the listeners of one kind.
func each[C any](kind string, configs map[string]C, describe func(subject.Writer, C) configured) (out []configured) {
	for _, n := range slices.Sorted(maps.Keys(configs)) {
		l := describe(subject.Writer(n), configs[n])
		l.kind, l.name = kind, n
		out = append(out, l)
	}
	return out
}

// chats lists the gateways to one chat network.
func chats[C interface {
	Validate() error
	CheckSecrets() error
}, G contract.Gateway](
	kind string, configs map[string]C, construct func(subject.Writer, C, chat.Deps) (G, error),
) []configured {
	return each(kind, configs, func(n subject.Writer, l C) configured {
		return configured{check: l.Validate, secrets: l.CheckSecrets, open: func(s *Service) (contract.Listener, error) {
			return construct(n, l, chat.Deps{Bus: s.deps.Bus, Logger: s.deps.Logger, Stats: &s.stats.chat})
		}}
	})
}

// hasAccount reports whether an email listener names an account that exists.
func (c Config) hasAccount(name string) error {
	if _, ok := c.Accounts.Accounts[name]; ok || name == "" && len(c.Accounts.Accounts) == 1 {
		return nil
	}
	return fmt.Errorf("account is %q, which email.accounts does not have; it has %s", name,
		cmp.Or(strings.Join(slices.Sorted(maps.Keys(c.Accounts.Accounts)), ", "), "none"))
}

// openEmail creates an e-mail listener. All share the accounts.
func (s *Service) openEmail(name subject.Writer, cfg email.Config) (contract.Listener, error) {
	if s.accounts == nil {
		accounts, err := mail.Open(s.cfg.Accounts)
		if err != nil {
			return nil, err
		}
		s.accounts = accounts
	}
	account, err := s.accounts.Get(cfg.Account)
	if err != nil {
		return nil, err
	}
	return email.New(name, cfg, email.Deps{
		Account: account, Bus: s.deps.Bus, Logger: s.deps.Logger, Stats: &s.stats.email, StateDir: s.opts.StateDir,
	})
}
