// Package people knows the people that the configuration names: their groups, and by which accounts
// they are known to the programs that authenticate them. It uses no bus and no clock.
//
// # Identity
//
// A person is one name, whatever they use: the writer ui-<name> of the UI bridge, whether the person
// has logged in there by OpenID Connect or with a token, and each of their accounts. An account is a
// writer, such as cli, or a writer and what it says about the sender, such as irc/ann. So somebody who
// answers twice, in two places, is still one person.
//
// # Failure
//
// [New] refuses names that could be mistaken for one another, and accounts that two people share.
package people
