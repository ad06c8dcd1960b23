package listener

import (
	"skandha.dev/pkg/subject"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/discord"
	"skandha.dev/services/listener/irc"
	"skandha.dev/services/listener/matrix"
	"skandha.dev/services/listener/slack"
	"skandha.dev/services/listener/telegram"
	"skandha.dev/services/listener/xmpp"
)

// makeChat creates the gateways to chat networks.
func (s *Service) makeChat() error {
	deps := chat.Deps{Bus: s.deps.Bus, Logger: s.deps.Logger, Stats: &s.stats.chat, StateDir: s.opts.StateDir}
	for _, err := range []error{
		makeAll(s, "irc", s.cfg.IRC, irc.New, deps),
		makeAll(s, "xmpp", s.cfg.XMPP, xmpp.New, deps),
		makeAll(s, "matrix", s.cfg.Matrix, matrix.New, deps),
		makeAll(s, "telegram", s.cfg.Telegram, telegram.New, deps),
		makeAll(s, "discord", s.cfg.Discord, discord.New, deps),
		makeAll(s, "slack", s.cfg.Slack, slack.New, deps),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// makeAll creates the gateways of one kind.
func makeAll[C any, G contract.Gateway](
	s *Service, kind string, configs map[string]C, construct func(subject.Writer, C, chat.Deps) (G, error), deps chat.Deps,
) error {
	for _, n := range sorted(configs) {
		g, err := construct(subject.Writer(n), configs[n], deps)
		if err := s.add(kind, n, g, err); err != nil {
			return err
		}
	}
	return nil
}
