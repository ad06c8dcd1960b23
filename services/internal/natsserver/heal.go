package natsserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The intervals of healing: how long to wait between two checks of the disk, and at
// most between two restarts when the first one did not last.
const (
	healPause    = time.Second
	healPauseMax = 30 * time.Second
)

// isWriteError reports whether a line of the server's log means that it no longer
// stores. Until it is restarted, the server keeps a stream's first write error, or has
// JetStream disabled.
func isWriteError(line string) bool {
	line = strings.ToLower(line)
	return strings.Contains(line, "critical write error") || strings.Contains(line, "disabling jetstream") ||
		strings.Contains(line, "will be disabled")
}

// healer restarts a server that has stopped storing, once its directory is writable
// again.
type healer struct {
	s       *Server
	faults  chan string // lines of the log; one is enough
	quit    chan struct{}
	once    sync.Once
	running sync.WaitGroup
}

func newHealer() *healer { return &healer{faults: make(chan string, 1), quit: make(chan struct{})} }

// saw handles a line of the server's log.
func (h *healer) saw(line string) {
	if h == nil || !isWriteError(line) {
		return
	}
	select {
	case h.faults <- line:
	default: // an earlier line is not handled yet
	}
}

func (h *healer) start(s *Server) {
	h.s = s
	h.running.Go(h.run)
}

func (h *healer) stop() {
	if h != nil {
		h.once.Do(func() { close(h.quit) })
		h.running.Wait()
	}
}

func (h *healer) run() {
	var last time.Time
	pause := healPause
	for {
		select {
		case <-h.quit:
			return
		case line := <-h.faults:
			h.s.cfg.Logger.Error("the bus cannot store; it will be restarted once its directory is writable",
				"dir", h.s.cfg.StoreDir, "error", line)
		}
		pause = min(2*pause, healPauseMax)
		if time.Since(last) > time.Minute {
			pause = healPause
		}
		if !h.heal(pause) {
			return
		}
		last = time.Now()
	}
}

// heal waits until the directory is writable and restarts the server. It returns false
// if it was stopped.
func (h *healer) heal(pause time.Duration) bool {
	log := h.s.cfg.Logger
	for {
		select {
		case <-h.quit:
			return false
		case <-time.After(pause):
		}
		if err := hasRoom(h.s.cfg.StoreDir, h.s.cfg.MaxPayload); err != nil {
			log.Debug("the bus's directory is not writable yet", "error", err)
			continue
		}
		select {
		case <-h.faults: // from the server that is stopped now
		default:
		}
		if err := h.s.Restart(0); err != nil {
			log.Error("restarting the bus failed; trying again", "error", err)
			continue
		}
		log.Info("the bus was restarted and stores again")
		return true
	}
}

// hasRoom tries to write as many bytes as the largest message needs.
func hasRoom(dir string, size int) (err error) {
	path := filepath.Join(dir, ".room")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("trying to write: %w", err)
	}
	defer func() { _ = os.Remove(path) }()
	chunk := make([]byte, 64<<10)
	for done := 0; done < size && err == nil; done += len(chunk) {
		_, err = f.Write(chunk)
	}
	if err == nil {
		err = f.Sync()
	}
	if shut := f.Close(); err == nil {
		err = shut
	}
	return err
}
