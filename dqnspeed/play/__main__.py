from dqnspeed.play import main

if __name__ == "__main__":
    main()
