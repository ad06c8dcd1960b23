package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"skandha.dev/docs"
	"skandha.dev/services/internal/nearest"
)

// docsCmd prints the pages that come with the program.
type docsCmd struct {
	Page string `arg:"" optional:"" help:"A page's name, such as plugins or reference/events; default: the list."`
}

// Run implements the command.
func (c docsCmd) Run() error { return c.print(os.Stdout) }

func (c docsCmd) print(out io.Writer) error {
	pages, err := docPages()
	if err != nil {
		return err
	}
	if c.Page == "" {
		for _, p := range pages {
			fmt.Fprintf(out, "%-26s %s\n", p.name, p.title)
		}
		fmt.Fprintln(out, "\nskandha docs PAGE prints one, as Markdown.")
		return nil
	}
	name := strings.TrimSuffix(c.Page, ".md")
	i := slices.IndexFunc(pages, func(p docPage) bool { return p.name == name || path.Base(p.name) == name })
	if i < 0 {
		names := make([]string, len(pages))
		for j, p := range pages {
			names[j] = p.name
		}
		hint := ""
		if near := nearest.Word(name, names); near != "" {
			hint = fmt.Sprintf(", did you mean %s?", near)
		}
		return fmt.Errorf("no page %q%s; skandha docs lists the pages", c.Page, hint)
	}
	_, err = out.Write(pages[i].text)
	return err
}

// docPage is a page; its title is its first heading.
type docPage struct {
	name, title string
	text        []byte
}

func docPages() (out []docPage, err error) {
	err = fs.WalkDir(docs.Pages, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := docs.Pages.ReadFile(file)
		title, _, _ := strings.Cut(string(text), "\n")
		title, heading := strings.CutPrefix(title, "# ")
		if err == nil && !heading {
			err = errors.New(file + " does not begin with a heading")
		}
		out = append(out, docPage{strings.TrimSuffix(file, ".md"), title, text})
		return err
	})
	return out, err
}
