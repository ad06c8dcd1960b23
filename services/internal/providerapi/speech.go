package providerapi

// TranscriberName and SpeakerName are the names, on the bus, of what turns speech into text and
// text into speech: in service.transcriber.<verb> and service.speaker.<verb>, and as the responders
// of their answers.
const (
	TranscriberName = "transcriber"
	SpeakerName     = "speaker"
)

// The verbs that any provider process with a transcriber or a speaker answers. [VerbStatus] asks for
// the state, and a process without one answers [VerbAbsent], as for embeddings.
const (
	VerbTranscribe = "transcribe" // TranscribeRequest -> Transcript
	VerbSpeak      = "speak"      // SpeakRequest -> Speech
)

// The limits of requests.
const (
	MaxAudioBytes      = 16 << 20 // of what is transcribed, and of speech
	MaxSpeechBytes     = 4 << 10  // of the text that is spoken
	MaxTranscriptBytes = 64 << 10
	MaxPromptBytes     = 4 << 10
)

// TranscribeRequest asks for the text of one piece of speech. The schema is
// schemas/service/provider/transcribe_request.json.
type TranscribeRequest struct {
	Audio     []byte `json:"audio"`              // 1 byte to [MaxAudioBytes]
	MediaType string `json:"media_type"`         // of the audio, e.g. "audio/wav"
	Language  string `json:"language,omitempty"` // ISO 639-1, e.g. "en"; absent: the model finds out
	Prompt    string `json:"prompt,omitempty"`   // words that may occur, for models that use it
}

// Transcript is the text of one piece of speech. The schema is
// schemas/service/provider/transcript.json.
type Transcript struct {
	Text     string  `json:"text"` // empty: nothing was said
	Language string  `json:"language,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"` // of the audio, as the model counted
	Model    string  `json:"model"`             // <provider>/<model>
}

// SpeakRequest asks for a text as speech. The schema is
// schemas/service/provider/speak_request.json.
type SpeakRequest struct {
	Text  string `json:"text"`            // 1 byte to [MaxSpeechBytes]
	Voice string `json:"voice,omitempty"` // default: the configured one
}

// Speech is a text as speech. The schema is schemas/service/provider/speech.json.
type Speech struct {
	Audio     []byte `json:"audio"`
	MediaType string `json:"media_type"` // e.g. "audio/mpeg"
	Model     string `json:"model"`      // <provider>/<model>
}

// SpeechModel is the transcriber or the speaker as it is now. The schema is
// schemas/service/provider/speech_model.json.
type SpeechModel struct {
	Model string `json:"model"` // <provider>/<model>
	Note  string `json:"note,omitempty"`
	// Reachable says whether its API answered, or its program was found, just now; absent if that was
	// not tried.
	Reachable *bool   `json:"reachable,omitempty"`
	Error     string  `json:"error,omitempty"` // why it is not reachable
	Breaker   Breaker `json:"breaker"`
}
