package deps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/services/sandbox/driver"
)

// Collect removes the least recently used sets until the rest is within Config.MaxSets and
// Config.MaxTotalBytes. It always keeps sets that a sandbox uses, and those used within
// Config.Settle. It returns how many sets it removed. Ensure calls it after each
// installation.
func (m *Manager) Collect(ctx context.Context) (int, error) {
	m.collecting.Lock()
	defer m.collecting.Unlock()
	sets, err := m.driver.Sets(ctx)
	if err != nil {
		return 0, fmt.Errorf("listing package sets: %w", err)
	}
	var bytes int64
	for i := range sets {
		bytes += sets[i].Bytes
	}
	count, removed := len(sets), 0
	var errs []error
	for _, s := range m.byUse(sets) {
		if count <= m.cfg.MaxSets && bytes <= m.cfg.MaxTotalBytes {
			break
		}
		gone, err := m.drop(ctx, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("removing package set %s: %w", s.ID, err))
		}
		if gone {
			count, bytes, removed = count-1, bytes-s.Bytes, removed+1
		}
	}
	return removed, errors.Join(errs...)
}

// byUse sorts the sets, least recently used first, as far as the driver and this manager
// know their use.
func (m *Manager) byUse(sets []driver.Set) []driver.Set {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range sets {
		sets[i].Used = m.lastUse(s)
	}
	for id, used := range m.used { // forget sets that no longer exist
		if m.now().Sub(used) >= m.cfg.Settle && !slices.ContainsFunc(sets, func(s driver.Set) bool { return s.ID == id }) {
			delete(m.used, id)
		}
	}
	slices.SortFunc(sets, func(a, b driver.Set) int { return a.Used.Compare(b.Used) })
	return sets
}

// lastUse requires m.mu.
func (m *Manager) lastUse(s driver.Set) time.Time {
	if used, ok := m.used[s.ID]; ok && used.After(s.Used) {
		return used
	}
	return s.Used
}

// drop removes the set unless it is in use, or Ensure has just returned it.
func (m *Manager) drop(ctx context.Context, s driver.Set) (bool, error) {
	m.removing.Lock()
	defer m.removing.Unlock()
	m.mu.Lock()
	busy := m.flights[s.ID] != nil || m.now().Sub(m.lastUse(s)) < m.cfg.Settle
	m.mu.Unlock()
	if busy {
		return false, nil
	}
	err := m.driver.RemoveSet(ctx, s.ID)
	switch {
	case errors.Is(err, driver.ErrInUse):
		return false, nil
	case errors.Is(err, driver.ErrNoSet):
		return true, nil
	}
	return err == nil, err
}
