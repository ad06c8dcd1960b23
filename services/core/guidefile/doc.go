// Package guidefile reads guides from Markdown files: those of a directory, and those that are
// built in. The body is the system prompt; the settings before it are in YAML.
//
// The name of a guide is that of its file, without .md. A file takes precedence over the built-in
// guide of the same name.
//
// Guarantee: a guide is used whole or not at all. After an edit that is wrong, the last good
// version stays in use. A change is read once the file has stayed the same for one check, so a
// half-written file is not used.
//
// Failure: a file that has been wrong since the start has no good version. The agent must then not
// answer, because the guide may restrict it. A file that is removed is no guide any more.
package guidefile
