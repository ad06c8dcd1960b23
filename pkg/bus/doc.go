// Package bus is how a Skandha process speaks on NATS.
package bus
