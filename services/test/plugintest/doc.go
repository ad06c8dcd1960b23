// Package plugintest holds the tests of the plugin SDK, pkg/plugin, that run
// against a real server. They live in this module because plugin authors who
// import pkg/plugin do not need a server.
package plugintest
