package match

import (
	"slices"
	"testing"

	"skandha.dev/pkg/tool"
)

func TestTheKeeperPreparesOnce(t *testing.T) {
	var k Keeper
	tools := []tool.Spec{{Name: "mail:send", Description: "Sends an email."}, {Name: "notes:add"}}
	before := k.Catalog(tools, Vectors{})
	if after := k.Catalog(slices.Clone(tools), Vectors{Model: "m"}); after.words.index != before.words.index {
		t.Error("prepared again for the same tools")
	}
	changed := slices.Clone(tools)
	changed[0].Description = "Draws a picture."
	got := k.Catalog(changed, Vectors{}).Rank(Request{Text: "draw", Limit: 1})
	if got[0].Tool.Description != changed[0].Description || got[0].Fit == 0 {
		t.Errorf("the change is not seen: %+v", got)
	}
}
