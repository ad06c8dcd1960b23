package decide

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/text"
)

// Team is what an agent may have other sessions do.
type Team struct {
	Agents   []subject.Agent // may be given tasks; the first one by default
	Depth    int             // how many sessions below its own may be one under the other
	Children int             // sessions that work for one session at once
	// About says what each agent is for, for the model; an agent may be missing.
	About map[subject.Agent]string
}

// introduction says to the model to whom it can give tasks; empty if to nobody.
func (a *Agent) introduction() string {
	if a.Team == nil || a.Team.Depth <= 0 {
		return ""
	}
	lines := []string{"The agents to whom you can give tasks with " + executor.Delegate + ":"}
	for _, name := range a.Team.Agents {
		line := "- " + string(name)
		if name == a.Name {
			line += " (another session of yours)"
		}
		if about := a.Team.About[name]; about != "" {
			line += ": " + about
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Bounds of what a session remembers of others, and of what they say to each other.
const (
	maxChildren = 64
	maxTask     = 80 // bytes of a task that are remembered
	maxHops     = 32 // messages between agents that may lead to one another
)

// Child is a session that works, or has worked, for this one.
type Child struct {
	event.Task                // the latest that it was given
	Text       string         `json:"text"`            // of its first task, cut
	Turn       string         `json:"turn"`            // of this session, which gave it the latest task
	Budget     event.Budget   `json:"budget,omitzero"` // what it may spend in all
	Usage      provider.Usage `json:"usage,omitzero"`  // what of its spending is counted here
	Ended      bool           `json:"ended,omitempty"` // the latest task
	Stopped    bool           `json:"stopped,omitempty"`
}

// within returns the agent as it is in a session that works for another one: with no more rights
// than those above it.
func (a *Agent) within(t *event.Terms, agents func(subject.Agent) *Agent) *Agent {
	if t == nil {
		return a
	}
	n := *a
	n.only, n.depth = t.Only, t.Depth
	n.Granted = slices.Clone(a.Granted)
	for _, name := range t.Agents {
		above := (*Agent)(nil)
		if agents != nil {
			above = agents(name)
		}
		if above == nil { // it is no longer configured
			above = &Agent{Name: name, Tools: []string{}, Granted: [][]string{{}}}
		}
		n.above = append(n.above, above)
		n.Granted = append(n.Granted, above.Granted...)
	}
	if n.Team != nil {
		team := *n.Team
		team.Depth = min(team.Depth, t.Deepest-t.Depth)
		n.Team = &team
	}
	n.Limits = n.Limits.within(t)
	return &n
}

// within returns the limits of a session that works for another one.
func (l Limits) within(t *event.Terms) Limits {
	if t != nil {
		l.SessionCostMicroUSD = tighter(l.SessionCostMicroUSD, t.Budget.CostMicroUSD)
		l.SessionTokens = tighter(l.SessionTokens, t.Budget.Tokens)
	}
	return l
}

// tighter returns the smaller one of two limits, of which 0 is none.
func tighter(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Offers reports whether the agent's configuration offers a tool to models. The tools of package
// subagents follow from its team, and in a session that works for another one, every agent above
// must offer the tool, too.
func (a *Agent) Offers(name string) bool {
	if executor.OfAgents(name) {
		return a.Team != nil && a.Team.Depth > 0 || a.depth > 0 && name == executor.SendAgent
	}
	if a.Tools != nil && !allowsAny(a.Tools, name) {
		return false
	}
	if _, own := planner.Own(name); own { // each step of a plan is a call
		return true
	}
	for _, above := range a.above {
		if !above.Offers(name) {
			return false
		}
	}
	return !slices.ContainsFunc(a.only, func(list []string) bool { return !allowsAny(list, name) })
}

func allowsAny(list []string, name string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return allows(p, name) })
}

// Principal returns who began the work on an input: its sender, or whom an agent works for that has
// sent it.
func (in Pending) Principal() (w subject.Writer, from, source string) {
	if in.By != nil {
		return in.By.Writer, in.By.From, in.By.Source
	}
	return in.Writer, in.From, in.Source
}

// commissionArgs are the arguments of the tools that send something to another session.
type commissionArgs struct {
	Agent   subject.Agent `json:"agent"`
	Task    string        `json:"task"`
	Tools   []string      `json:"tools"`
	Share   float64       `json:"share"`
	Session string        `json:"session"`
}

// commission returns what a call of agent:delegate or agent:send is to send, nil for every other
// tool, or why it cannot.
func (b *builder) commission(st *Step, args json.RawMessage) (*event.Commission, string) {
	if st.Tool != executor.Delegate && st.Tool != executor.SendAgent {
		return nil, ""
	}
	if c := st.Commission; c != nil { // of an earlier attempt
		return c, ""
	}
	var a commissionArgs
	if err := decodeInto(args, &a); err != nil {
		return nil, "the arguments cannot be read: " + err.Error()
	}
	t := b.s.Turn
	by := event.FromAgent{Ref: b.s.Ref, Call: st.Call, Stranger: b.stranger(), After: b.labels(), Hops: 1}
	by.Writer, by.From, by.Source = t.Principal()
	if t.By != nil {
		by.Hops, by.Stranger = t.By.Hops+1, cmp.Or(by.Stranger, t.By.Stranger)
	}
	if by.Hops > maxHops {
		return nil, fmt.Sprintf("agents have sent each other %d messages without a person's; end the turn instead", maxHops)
	}
	c := &event.Commission{By: by}
	if st.Tool == executor.Delegate {
		return c, b.delegate(c, a)
	}
	return c, b.address(c, a)
}

// delegate completes the commission of a new session.
func (b *builder) delegate(c *event.Commission, a commissionArgs) (why string) {
	agent, s := b.agent(), b.s
	if agent.Team == nil || len(agent.Team.Agents) == 0 {
		return fmt.Sprintf("agent %s has no team in the configuration", agent.Name)
	}
	to := cmp.Or(a.Agent, agent.Team.Agents[0])
	switch {
	case agent.Team.Depth <= 0:
		return "a session this far below the first one may give no tasks to others; do the task yourself"
	case !slices.Contains(agent.Team.Agents, to):
		return fmt.Sprintf("agent is %q, want one of %q", to, agent.Team.Agents)
	case b.env.Agents == nil || b.env.Agents(to) == nil:
		return fmt.Sprintf("agent %q is not configured", to)
	case s.working() >= agent.Team.Children:
		return fmt.Sprintf("%d sessions work for this one already; wait for one with %s, or end one with %s", s.working(),
			executor.WaitAgents, executor.StopAgent)
	}
	budget, why := b.share(a.Share)
	if why != "" {
		return why
	}
	only := b.s.Turn.allowed()
	if s.Terms != nil {
		only = append(slices.Clone(s.Terms.Only), only...)
	}
	if a.Tools != nil {
		only = append(only, a.Tools)
	}
	terms := event.Terms{Depth: 1, Agents: []subject.Agent{s.Ref.Agent}, Only: only, Budget: budget}
	if s.Terms != nil {
		terms.Depth = s.Terms.Depth + 1
		terms.Agents = append(terms.Agents, slices.DeleteFunc(slices.Clone(s.Terms.Agents), func(x subject.Agent) bool { return x == s.Ref.Agent })...)
	}
	terms.Deepest = terms.Depth + agent.Team.Depth - 1
	c.To = subject.Ref{Agent: to, Session: childOf(s.Ref, c.By.Call)}
	c.By.Terms = &terms
	return ""
}

// childOf returns the session that works on what a call delegates: a name that begins like the
// parent's, and that no other call has.
func childOf(parent subject.Ref, call string) subject.Session {
	sum := sha256.Sum256([]byte(parent.String() + " " + call))
	id := "_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
	name := string(parent.Session)
	return subject.Session(name[:min(len(name), subject.MaxIDLen-len(id))] + id)
}

// Parent is the address of the session that has given the task.
const Parent = "parent"

// address completes the commission of a message to a session that is known.
func (b *builder) address(c *event.Commission, a commissionArgs) (why string) {
	if a.Session == Parent && b.s.Above != nil {
		c.To = *b.s.Above
		return ""
	}
	if child := b.s.child(subject.Session(a.Session)); child != nil {
		c.To = child.Ref
		return ""
	}
	known := b.s.addresses()
	if len(known) == 0 {
		return "no session works for this one, so there is nobody to write to"
	}
	return fmt.Sprintf("session is %q, want one of %q", a.Session, known)
}

func (s *State) addresses() (out []string) {
	if s.Above != nil {
		out = append(out, Parent)
	}
	for _, c := range s.Children {
		out = append(out, string(c.Session))
	}
	return out
}

// allowed returns the lists of the skills that limit the tools of the turn.
func (t *Turn) allowed() (lists [][]string) {
	for _, sk := range t.Skills {
		lists = append(lists, sk.AllowedTools)
	}
	return lists
}

// share returns what a new session may spend: of what is left, the given share or, for 0, an equal
// one for each call of the round that delegates and has not yet, and one for the turn itself.
func (b *builder) share(part float64) (event.Budget, string) {
	if part <= 0 {
		waiting := 1 // for this call
		for i := range b.s.Turn.Steps {
			if st := &b.s.Turn.Steps[i]; st.Tool == executor.Delegate && st.Status == Waiting {
				waiting++
			}
		}
		part = 1 / float64(max(waiting, 2))
	}
	left, none := b.s.left(b.agent().Limits)
	if none != "" {
		return event.Budget{}, none
	}
	cut := func(n int64) int64 {
		if n <= 0 {
			return 0 // no limit
		}
		return max(int64(float64(n)*min(part, 1)), 1)
	}
	return event.Budget{Tokens: cut(left.Tokens), CostMicroUSD: cut(left.CostMicroUSD)}, ""
}

// left returns what the turn may still spend, without what is reserved for other sessions; 0 is no
// limit. none says what is used up, if anything is.
func (s *State) left(l Limits) (left event.Budget, none string) {
	held := s.reserved()
	least := func(of *int64, what string, limit, used int64) {
		if limit <= 0 {
			return
		}
		n := limit - used
		if n <= 0 {
			none = cmp.Or(none, "nothing is left of the limit of "+what)
		}
		if *of == 0 || n < *of {
			*of = n
		}
	}
	tokens := func(u provider.Usage) int64 { return u.InputTokens + u.OutputTokens }
	least(&left.Tokens, "tokens per turn", l.Tokens, tokens(s.Turn.Usage)+held.Tokens)
	least(&left.Tokens, "tokens of the session", l.SessionTokens, tokens(s.Usage)+held.Tokens)
	least(&left.CostMicroUSD, "cost per turn", l.CostMicroUSD, s.Turn.Usage.CostMicroUSD+held.CostMicroUSD)
	least(&left.CostMicroUSD, "cost of the session", l.SessionCostMicroUSD, s.Usage.CostMicroUSD+held.CostMicroUSD)
	return left, none
}

// reserved returns what the sessions that work for this one may still spend.
func (s *State) reserved() (sum event.Budget) {
	for _, c := range s.Children {
		if c.Ended {
			continue
		}
		sum.Tokens += max(c.Budget.Tokens-c.Usage.InputTokens-c.Usage.OutputTokens, 0)
		sum.CostMicroUSD += max(c.Budget.CostMicroUSD-c.Usage.CostMicroUSD, 0)
	}
	return sum
}

// working counts the sessions that work for this one.
func (s *State) working() (n int) {
	for _, c := range s.Children {
		if !c.Ended && !c.Stopped {
			n++
		}
	}
	return n
}

func (s *State) child(name subject.Session) *Child {
	i := slices.IndexFunc(s.Children, func(c Child) bool { return c.Session == name })
	if i < 0 {
		return nil
	}
	return &s.Children[i]
}

// sent folds that a call sends something to another session.
func (s *State) sent(c *event.Commission, args json.RawMessage) {
	if c == nil || s.Above != nil && c.To == *s.Above {
		return
	}
	task := event.Task{Ref: c.To, InputID: c.By.Call}
	if old := s.child(c.To.Session); old != nil {
		old.Task, old.Turn, old.Ended, old.Stopped = task, s.Turn.ID, false, false
		return
	}
	if len(s.Children) >= maxChildren {
		i := slices.IndexFunc(s.Children, func(c Child) bool { return c.Ended })
		s.Children = slices.Delete(s.Children, max(i, 0), max(i, 0)+1)
	}
	var a commissionArgs
	_ = decodeInto(args, &a) // they were read before
	n := Child{Task: task, Text: text.Cut(a.Task, maxTask), Turn: s.Turn.ID}
	if c.By.Terms != nil {
		n.Budget = c.By.Terms.Budget
	}
	s.Children = append(s.Children, n)
}

// reported folds what became of the work of other sessions. What they have spent counts here once.
func (s *State) reported(tasks []event.TaskReport) {
	for _, r := range tasks {
		c := s.child(r.Session)
		if c == nil || c.Ref != r.Ref {
			continue
		}
		s.spend(more(r.Usage, c.Usage))
		c.Usage, c.Ended = r.Usage, r.Ended
	}
}

// more returns what was spent since.
func more(now, before provider.Usage) provider.Usage {
	return provider.Usage{
		InputTokens: now.InputTokens - before.InputTokens, OutputTokens: now.OutputTokens - before.OutputTokens,
		CachedTokens: now.CachedTokens - before.CachedTokens, CacheWriteTokens: now.CacheWriteTokens - before.CacheWriteTokens,
		ReasoningTokens: now.ReasoningTokens - before.ReasoningTokens, CostMicroUSD: now.CostMicroUSD - before.CostMicroUSD,
		Unpriced: now.Unpriced - before.Unpriced, Uncounted: now.Uncounted - before.Uncounted,
	}
}

// stops lists the tasks that other sessions work on: for a turn or, with "", for any.
func (s *State) stops(turn string) (out []event.Task) {
	for _, c := range s.Children {
		if !c.Ended && !c.Stopped && (turn == "" || c.Turn == turn) {
			out = append(out, c.Task)
		}
	}
	return out
}

// onStopped folds that tasks of other sessions are to be cancelled. What they spend is reserved until
// they report it.
func (s *State) onStopped(tasks []event.Task) {
	for _, t := range tasks {
		if c := s.child(t.Session); c != nil && c.InputID == t.InputID {
			c.Stopped = true
		}
	}
}

// worksFor binds the session to the one that sent an input with terms. It returns why it cannot.
func (x *causeDecider) worksFor(in event.Input) string {
	by := in.By
	switch {
	case x.c.Writer != subject.AgentWriter && in.Origin.Kind() == event.OriginAgent:
		return fmt.Sprintf("origin is %q, which is only for messages of agents", in.Origin)
	case by == nil:
		return ""
	case x.c.Writer != subject.AgentWriter:
		return "by is set, which only core may do"
	case by.Terms == nil:
		return ""
	case x.s.Commits > 0 && (x.s.Above == nil || *x.s.Above != by.Ref):
		return fmt.Sprintf("the session already exists, and does not work for %s", by.Ref)
	}
	return ""
}

// strictest returns the ruling that allows less; of equals, the first.
func strictest(a, b Ruling) Ruling {
	rank := func(e Effect) int { return slices.Index([]Effect{Allow, Ask, Deny}, e) }
	if rank(b.Effect) > rank(a.Effect) {
		return b
	}
	return a
}

// sender names the agent that a task or a message is from, for the model.
func (in Pending) sender() string {
	if in.By == nil || in.Origin != "" {
		return ""
	}
	return fmt.Sprintf("\n[from agent %s, which waits for the result: your last answer is sent to it]", in.By.Agent)
}

// tasksOf returns what an executor says about the sessions that work for this one.
func tasksOf(st *Step, a executor.Answer) []event.TaskReport {
	if !executor.OfAgents(st.Tool) {
		return nil
	}
	return a.Tasks
}

// cannotSend ends a call that cannot send what it is to, and reports so.
func (b *builder) cannotSend(st Step, args json.RawMessage) bool {
	if _, why := b.commission(&st, args); why != "" {
		b.complete(st.Call, tool.Failure(tool.CodeDenied, why))
		return true
	}
	return false
}
