package sensor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skandha.dev/services/listener/mapping"
)

// look is what is known of a file.
type seen struct {
	Size     int64 `json:"size"`
	Modified int64 `json:"modified"` // in nanoseconds since 1970
}

// directorySource watches a directory.
type directorySource struct {
	cfg   Directory
	known map[string]seen // files that were readings, by name
	// Files that must not change for a time, since when they have been as they are.
	settling map[string]settling
}

type settling struct {
	seen
	since time.Time
}

func (d *directorySource) run(ctx context.Context, s *sink) error {
	d.known, d.settling = map[string]seen{}, map[string]settling{}
	found, err := s.load(ctx, &d.known)
	if err != nil {
		return err
	}
	if !found {
		if err := d.first(ctx, s); err != nil {
			return err
		}
	}
	tick := time.NewTicker(d.cfg.Interval)
	defer tick.Stop()
	for {
		if err := d.look(ctx, s); err != nil {
			return err
		}
		s.ok()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// first takes the files that are there as known, unless they count.
func (d *directorySource) first(ctx context.Context, s *sink) error {
	if d.cfg.From != FromStart {
		files, err := d.list()
		if err != nil {
			return err
		}
		d.known = files
	}
	return s.save(ctx, d.known)
}

// list returns the regular files.
func (d *directorySource) list() (map[string]seen, error) {
	entries, err := os.ReadDir(d.cfg.Path)
	if err != nil {
		return nil, err
	}
	out := map[string]seen{}
	for _, e := range entries {
		if !e.Type().IsRegular() || !d.wants(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it has been removed
		}
		if out[e.Name()] = (seen{info.Size(), info.ModTime().UnixNano()}); len(out) > d.cfg.MaxFiles {
			return nil, fmt.Errorf("%s has more than %d files (max_files)", d.cfg.Path, d.cfg.MaxFiles)
		}
	}
	return out, nil
}

func (d *directorySource) wants(name string) bool {
	if d.cfg.Pattern == "" {
		return !strings.HasPrefix(name, ".")
	}
	ok, err := path.Match(d.cfg.Pattern, name)
	return ok && err == nil
}

// look delivers the files that have settled.
func (d *directorySource) look(ctx context.Context, s *sink) error {
	files, err := d.list()
	if err != nil {
		return err
	}
	now, changed := s.now(), false
	var readings []mapping.Reading
	next := maps.Clone(d.known)
	for name := range d.known {
		if _, still := files[name]; !still {
			delete(next, name)
			changed = true
		}
	}
	maps.DeleteFunc(d.settling, func(name string, _ settling) bool { _, still := files[name]; return !still })
	for _, name := range slices.Sorted(maps.Keys(files)) {
		is := files[name]
		was, known := d.known[name]
		if known && was == is {
			delete(d.settling, name)
			continue
		}
		if w, ok := d.settling[name]; !ok || w.seen != is {
			d.settling[name] = settling{is, now}
			continue
		} else if now.Sub(w.since) < d.cfg.Settle {
			continue
		}
		r, err := d.reading(name, is, known)
		if err != nil {
			return err
		}
		readings, next[name], changed = append(readings, r), is, true
		if len(readings) == maxLines {
			break
		}
	}
	if !changed {
		return nil
	}
	if err := s.deliver(ctx, readings); err != nil {
		return err
	}
	if err := s.save(ctx, next); err != nil {
		return err
	}
	d.known = next
	return nil
}

func (d *directorySource) reading(name string, is seen, known bool) (mapping.Reading, error) {
	event := "new"
	if known {
		event = "changed"
	}
	data, err := json.Marshal(map[string]any{
		"name": strings.ToValidUTF8(name, "\ufffd"), "path": strings.ToValidUTF8(filepath.Join(d.cfg.Path, name), "\ufffd"), "size": is.Size,
		"modified": time.Unix(0, is.Modified).UTC().Format(time.RFC3339), "event": event,
	})
	if err != nil {
		return mapping.Reading{}, err
	}
	return mapping.Reading{Name: filepath.Base(d.cfg.Path), Data: data, Again: true, ID: id(name, is.Size, is.Modified)}, nil
}
