// Package microphone is the listener that hears: a device of ALSA or PulseAudio, a stream of the
// network, a file, or the output of a command. What is spoken becomes inputs, as text.
//
// # Subjects
//
// Produced: see package capture; and requests on service.transcriber.transcribe, which any provider
// process with a transcriber answers (package providerapi). Consumed: see package capture.
//
// # What is perceived
//
// Sound is read as 16 kHz mono. Speech begins when the energy of 60 ms in a row exceeds the noise
// floor by margin, and ends after hangover without that, or after max_speech; 300 ms before its
// beginning belong to it. The floor follows silence at once and louder sound by two decibels a
// second, so that a noise that stays is soon a part of it. Speech shorter than min_speech is
// dropped. Each segment is transcribed; its text is the input, and the sound, as WAV, its file.
// A segment without words is dropped, and its sound not kept.
//
// # Guarantee, consent, back-pressure
//
// See package capture. A segment has at most one megabyte or so; [capture.MaxWaiting] of them wait.
//
// # Failure
//
// While there is no transcriber, or it fails, a segment waits, up to patience; then the input says
// that speech was heard and was not understood, and why, with the sound as its file.
package microphone
