// Package speech turns speech into text and text into speech: through an API with OpenAI's wire
// format (POST /audio/transcriptions and /audio/speech, which whisper.cpp, vLLM, LocalAI and others
// have as well), or with a program on this machine that is started for each request.
//
// # Programs
//
// A recogniser gets the audio in a file, whose path replaces {file} in its arguments, or else on its
// standard input; the text is its standard output. A synthesiser gets the text on its standard input,
// and {voice} in its arguments is replaced by the voice; the audio is its standard output. A program
// gets no variables of this process but PATH, HOME and LANG, because others may be secrets.
//
// # Guarantee
//
// Text and audio are within the limits of package providerapi. A program is killed with all that it
// has started when it ends, takes too long, or its request ends. The file with the audio is readable
// for this user alone, and removed afterwards.
//
// # Failure
//
// Failures have the codes of the contract, and none holds a key. Those of an API that may be
// transient are tried again by package retry, which also keeps its circuit breaker. A program is not
// started again for the same request.
package speech
