package hook

// Allows reports whether v is valid at the point. A verb that is not valid has no effect and
// is recorded as an error of the plugin.
//
//	point            continue stop  replace  deny  confirm answer
//	before_sense     x        x     x        x
//	after_sense      x        x     x        x
//	before_plan      x        x     x        x
//	after_plan       x        x     x        x
//	before_act       x        x     x        x     x       x
//	after_act        x        x     x        x
//	before_reflect   x        x     x
//	the others       x        x
func (p Point) Allows(v Verb) bool {
	switch v {
	case Continue, Stop:
		return true
	case Replace:
		return p.Deniable() || p == BeforeReflect
	case DenyVerb:
		return p.Deniable()
	case Confirm, AnswerFor:
		return p == BeforeAct
	}
	return false
}

// Deniable reports whether a plugin can deny at the point: the input, the turn, the call, or
// the use of its result.
func (p Point) Deniable() bool {
	switch p {
	case BeforeSense, AfterSense, BeforePlan, AfterPlan, BeforeAct, AfterAct:
		return true
	}
	return false
}

// MaxReply is the maximum size of a plugin's reply, in bytes.
const MaxReply = 1 << 20
