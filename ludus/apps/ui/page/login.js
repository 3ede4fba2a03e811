// The page that asks for the password of a server that is reached over a network.

const form = document.querySelector("form");
const answer = document.getElementById("answer");
const password = document.getElementById("password");

// A cookie does not come along where the page was opened from elsewhere: it may be there all the same.
if (location.search === "?again") fetch("api/session").then((reply) => reply.ok && location.replace("./"), () => {});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  answer.textContent = "";
  form.inert = true;
  try {
    const reply = await fetch("/enter", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Ludus": "1" },
      body: JSON.stringify({ password: password.value }),
    });
    if (reply.ok) {
      location.replace(`${reply.headers.get("location")}${location.hash}`);
      return;
    }
    const { error } = await reply.json();
    answer.textContent = error[0].toUpperCase() + error.slice(1);
  } catch {
    answer.textContent = "The server does not answer. Try again.";
  }
  form.inert = false;
  password.select();
  password.focus();
});
