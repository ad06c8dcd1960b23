package event

// Grant approves calls of one tool whose arguments match, in its session and until /reset:
// "always for this session". It replaces the confirmation that policy would require. It
// never applies to a call that policy denies or for which a hook requires confirmation.
type Grant struct {
	Tool string `json:"tool"`
	// Args maps names of arguments to patterns. A pattern is the exact value, or it ends in
	// "/*" and matches everything below a clean path, or below a URL of that origin.
	Args map[string]string `json:"args,omitempty"`
	// Hash is set if only this exact call is granted: it is the call's hash, and Args is empty.
	Hash string `json:"hash,omitempty"`
	// Spec is the digest of the tool's spec. The grant does not cover a tool with another owner
	// or spec.
	Spec string `json:"spec,omitempty"`
	// After is what the request named as read from outside: [ToolCallRequest.After]. The grant
	// covers no call that follows another text from outside.
	After []string `json:"after,omitempty"`
	// People is how many people had to approve it, if more than one. The grant covers no call that
	// needs more.
	People int `json:"people,omitempty"`
	// Requester is set if the person who asks for a call may not approve it: the grant covers calls
	// for this person alone, or for this writer if the configuration names no such person.
	Requester string `json:"requester,omitempty"`
}
