package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/docker/go-units"
	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/backup"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/skandha/system"
)

// backupExt is how the names of archives end that the command chooses itself.
const backupExt = ".backup"

// directories are the flags that say which directories an archive has beside the bus.
type directories struct {
	Dir []string `env:"SKANDHA_BACKUP_DIRS" placeholder:"NAME=PATH" help:"Also this directory. Repeatable. A system on --data has workspace, guides, skills and attempts, which these replace by name."`
}

// of returns the directories of a system on --data, and those of the flags.
func (d directories) of(g *globals) (all []backup.Source, err error) {
	if g.NATS == "" {
		for _, s := range system.States(g.Data, g.Workspace) {
			all = append(all, backup.Source{Name: s.Name, Path: s.Path})
		}
	}
	for _, flag := range d.Dir {
		name, path, ok := strings.Cut(flag, "=")
		if !ok || name == "" || path == "" {
			return nil, fmt.Errorf("--dir %q: want NAME=PATH", flag)
		}
		all = slices.DeleteFunc(all, func(s backup.Source) bool { return s.Name == name })
		all = append(all, backup.Source{Name: name, Path: path})
	}
	return all, nil
}

// backupCmd writes an archive of a system.
type backupCmd struct {
	File string `arg:"" placeholder:"FILE|DIR" help:"File to write, which must not exist; a directory, in which the file's name is the time; or - for standard output."`
	directories
	Quiet bool `short:"q" help:"Do not report progress."`
}

// Run implements the command.
func (c *backupCmd) Run(ctx context.Context, g *globals) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	dirs, err := c.of(g)
	if err != nil {
		return err
	}
	to, err := createArchive(c.File, time.Now())
	if err != nil {
		return err
	}
	defer to.discard()
	b, done, err := g.busOf(ctx, false)
	if err != nil {
		return err
	}
	defer done()
	m, err := backup.Take(ctx, b, to, backup.TakeConfig{
		Dirs: dirs, Version: buildinfo.String(), Progress: printProgress(c.Quiet, time.Now),
	})
	if err == nil {
		err = to.finish()
	}
	if err != nil {
		return fmt.Errorf("backup: %w; nothing was kept", err)
	}
	if len(m.Skipped) > 0 {
		fmt.Fprintf(os.Stderr, "not in it, because they are in the server's memory: %s\n", strings.Join(m.Skipped, ", "))
	}
	for _, d := range m.Dirs {
		if d.Skipped > 0 {
			fmt.Fprintf(os.Stderr, "not in it: %s of %s\n", count(d.Skipped, "link, socket or device"), d.Name)
		}
	}
	fmt.Fprintf(os.Stderr, "wrote %s: %s; anybody who reads it reads all conversations\n", clean(to.name), contentsOf(m))
	if m.Account != "" {
		fmt.Fprintln(os.Stderr, "not in it: the keys of the bus (keys.json); keep a copy of them elsewhere, or, "+
			"after a restore without them, every plugin and listener needs new credentials")
	}
	return nil
}

// contentsOf says what an archive contains.
func contentsOf(m backup.Manifest) string {
	var bytes int64
	var messages uint64
	for _, s := range m.Streams {
		bytes, messages = bytes+s.Bytes, messages+s.Messages()
	}
	files := 0
	for _, d := range m.Dirs {
		bytes, files = bytes+d.Bytes, files+d.Files
	}
	return fmt.Sprintf("%s with %s, %s, %s", count(len(m.Streams), "stream"), count(messages, "message"),
		count(files, "file"), units.BytesSize(float64(bytes)))
}

// archiveFile is a file that gets its name when it is complete.
type archiveFile struct {
	*os.File
	name string // as it is named in the end
	tmp  string // empty for standard output, and once it has its name
}

func createArchive(name string, now time.Time) (*archiveFile, error) {
	if name == "-" {
		if isTerminal(os.Stdout) {
			return nil, errors.New("standard output is a terminal; redirect it to a file or a program")
		}
		return &archiveFile{os.Stdout, "to standard output", ""}, nil
	}
	if isDir(name) {
		name = filepath.Join(name, "skandha-"+now.UTC().Format("20060102-150405")+backupExt)
	}
	if _, err := os.Lstat(name); err == nil {
		return nil, fmt.Errorf("%s exists; name another file", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".partial-") // with mode 0600
	if err != nil {
		return nil, fmt.Errorf("creating the archive: %w", err)
	}
	return &archiveFile{f, name, f.Name()}, nil
}

// finish gives the file its name, unless that exists by now.
func (a *archiveFile) finish() error {
	if a.tmp == "" {
		return nil
	}
	if err := errors.Join(a.Sync(), a.Close()); err != nil {
		return err
	}
	if err := os.Link(a.tmp, a.name); errors.Is(err, os.ErrExist) {
		return err
	} else if err != nil { // a file system without links
		if err := os.Rename(a.tmp, a.name); err != nil {
			return err
		}
		a.tmp = ""
	}
	dir, err := os.Open(filepath.Dir(a.name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// discard removes what is not finished.
func (a *archiveFile) discard() {
	if a.tmp != "" {
		_ = a.Close()
		_ = os.Remove(a.tmp)
	}
}

// restoreCmd restores an archive.
type restoreCmd struct {
	File string `arg:"" placeholder:"FILE|DIR" help:"Archive; a directory, of which the latest one is taken; or - for standard input."`
	directories
	Replace  bool `help:"Remove everything that the bus and the directories hold first. Without it, they must be empty."`
	Check    bool `help:"Only read the archive, and say whether it is complete and what it contains."`
	Replicas int  `placeholder:"N" help:"Copies of each stream on a cluster of NATS servers: 1, 3 or 5. Default: as many as there were."`
	Quiet    bool `short:"q" help:"Do not report progress."`
}

// Run implements the command.
func (c *restoreCmd) Run(ctx context.Context, g *globals) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	dirs, err := c.of(g)
	if err != nil {
		return err
	}
	f, name, err := openArchive(c.File)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !c.Quiet {
		fmt.Fprintf(os.Stderr, "reading %s, %s …\n", clean(name), units.BytesSize(float64(info.Size())))
	}
	a, err := backup.Open(f, info.Size())
	if err != nil {
		return fmt.Errorf("%s: %w; nothing was written", name, err)
	}
	fmt.Fprintf(os.Stderr, "%s is complete: of %s, by version %s: %s\n", clean(name), a.Begun.Local().Format(time.DateTime),
		clean(a.Version), contentsOf(a.Manifest))
	if c.Check {
		return nil
	}
	b, done, err := g.busOf(ctx, true)
	if err != nil {
		return err
	}
	defer done()
	if err := servicesGone(ctx, b); err != nil {
		return err
	}
	err = a.Restore(ctx, b, backup.RestoreConfig{
		Dirs: dirs, Replace: c.Replace, Replicas: c.Replicas, Progress: printProgress(c.Quiet, time.Now),
	})
	var full *backup.NotEmptyError
	var incomplete *backup.IncompleteError
	switch {
	case errors.As(err, &full):
		fmt.Fprintf(os.Stderr, "skandha: nothing was written, because the system is %v; "+
			"restore into an empty one, or remove what is there with --replace\n", full)
		return exitRefused
	case errors.As(err, &incomplete):
		return fmt.Errorf("restore: %w (--replace)", err)
	case err != nil:
		return fmt.Errorf("restore: %w", err)
	}
	fmt.Fprintln(os.Stderr, "restored; start the services, which make lists and statistics again from the log")
	for _, line := range rightsAfter(a.Account, b.Account()) {
		fmt.Fprintln(os.Stderr, line)
	}
	return nil
}

// rightsAfter says who may connect after a restore, by the accounts of the backup and of the bus.
func rightsAfter(was, is string) []string {
	command := buildinfo.Command()
	switch {
	case was == "" && is == "":
		return nil
	case is == "":
		return []string{
			"WARNING: this bus enforces no rights, and the one of the backup did: here, anybody with the token may do everything",
			"the plugins and listeners that were invited are known, but their credentials are of no use here",
		}
	case was == "":
		return []string{"this bus enforces rights, and the one of the backup did not: invite every plugin and listener with " +
			command + " plugins invite NAME"}
	case was != is:
		return []string{
			"the keys of this bus are not those of the backup: nobody from outside can connect with earlier credentials",
			command + " plugins identities lists who was invited; give each of them new credentials with " +
				command + " plugins rotate NAME, or revoke it",
		}
	}
	return []string{"the keys are those of the backup: who was invited when it was taken may connect again, also who was " +
		"revoked since; " + command + " plugins identities lists them"}
}

// openArchive opens an archive. Standard input that is no file is kept in a file without a name.
func openArchive(name string) (f *os.File, shown string, err error) {
	if name != "-" {
		if isDir(name) {
			if name, err = latestArchive(name); err != nil {
				return nil, "", err
			}
		}
		f, err = os.Open(name)
		return f, name, err
	}
	if info, err := os.Stdin.Stat(); err == nil && info.Mode().IsRegular() {
		return os.Stdin, "standard input", nil
	}
	if isTerminal(os.Stdin) {
		return nil, "", errors.New("standard input is a terminal; redirect it from a file or a program")
	}
	if f, err = os.CreateTemp("", "skandha-restore-"); err != nil {
		return nil, "", fmt.Errorf("keeping standard input: %w", err)
	}
	_ = os.Remove(f.Name()) // the open file stays
	if _, err := io.Copy(f, os.Stdin); err != nil {
		return nil, "", errors.Join(fmt.Errorf("keeping standard input in %s: %w; name a directory with more room "+
			"in TMPDIR", os.TempDir(), err), f.Close())
	}
	return f, "standard input", nil
}

func latestArchive(dir string) (string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "skandha-*"+backupExt))
	if err != nil || len(all) == 0 {
		return "", fmt.Errorf("%s contains no file skandha-*%s; name the archive", dir, backupExt)
	}
	return slices.Max(all), nil // their names are times
}

// busOf returns the bus of the system that the flags name. If it does not run, its bus is started for
// this process; write makes a data directory that is missing.
func (g *globals) busOf(ctx context.Context, write bool) (b *bus.Bus, done func(), err error) {
	c, err := g.connectRunning(ctx)
	if err == nil {
		return c.Journal.Bus, c.close, nil
	}
	if !errors.Is(err, errNoSystem) || !write && !holdsLog(g.Data) {
		return nil, nil, err
	}
	o, err := system.StartOffline(ctx, g.Data, g.logger())
	if err != nil {
		return nil, nil, err
	}
	return o.Bus, o.Stop, nil
}

// servicesGone returns an error while services use the bus.
func servicesGone(ctx context.Context, b *bus.Bus) error {
	caller, err := b.NewCaller()
	if err != nil {
		return err
	}
	defer func() { _ = caller.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = caller.Request(ctx, subject.Service(coreapi.ServiceName, coreapi.VerbStatus), coreapi.ServiceName, nil)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, bus.ErrUnavailable) {
		return nil
	}
	fmt.Fprintln(os.Stderr, "skandha: nothing was written, because a core runs on this bus; stop all services first, "+
		"and leave only the bus itself running; an embedded system (up, chat) is stopped as a whole")
	return exitRefused
}

// progressEvery is the least time between two lines about the same stream.
const progressEvery = 2 * time.Second

// printProgress prints a line for each stream, and more for those that take long.
func printProgress(quiet bool, now func() time.Time) func(backup.Progress) {
	said := now()
	return func(p backup.Progress) {
		if quiet || !p.Done && now().Sub(said) < progressEvery {
			return
		}
		said = now()
		switch {
		case p.Done:
			fmt.Fprintf(os.Stderr, "  %-16s %s\n", p.What, units.BytesSize(float64(p.Bytes)))
		case p.Of > 0:
			fmt.Fprintf(os.Stderr, "  %-16s %s of about %s …\n", p.What, units.BytesSize(float64(p.Bytes)),
				units.BytesSize(float64(p.Of)))
		default:
			fmt.Fprintf(os.Stderr, "  %-16s %s …\n", p.What, units.BytesSize(float64(p.Bytes)))
		}
	}
}
